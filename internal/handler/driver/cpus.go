package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/podresize"
)

const (
	// usePatience is how long a guest's system may take to bring new CPUs into use. useFirst and useLongest bound the
	// interval between two queries.
	usePatience = 30 * time.Second
	useFirst    = time.Second
	useLongest  = 8 * time.Second

	reasonCPUsNotUsed = "CPUsNotUsed"
)

func (d *Driver) observeCPUs(s *snapshot) {
	wanted := d.wantedCPUs(s)
	due, after := s.attached.guest.CPUsDue(wanted)
	if s.cpusAfter = after; due {
		s.cpus = wanted
	}
	s.keptCPUs = s.attached.guest.KeptCPUs()
}

// wantedCPUs returns 0 for no change.
func (d *Driver) wantedCPUs(s *snapshot) int {
	vmi := s.presence.VMI
	if s.role != guestlifecycle.Home || !podresize.CPUsAnnounced(vmi) || s.guest.Migration.UnderWay() {
		return 0
	}
	want, known := d.podResources(vmi)
	if !known {
		return 0
	}
	return guestlifecycle.WantedCPUs(vmi, s.guest.VCPUs, s.guest.RunState, s.guest.KVM, s.presence.Pod, want)
}

func (s *snapshot) failure(step error) error {
	switch {
	case step != nil:
		return step
	case s.keptCPUs != "":
		return errors.New(s.keptCPUs)
	case s.keptMemory != "":
		return errors.New(s.keptMemory)
	}
	return s.nics.Problem()
}

// changeCPUs plugs virtual CPUs, or asks the guest to release some. After plugging it asks the agent whether the
// guest uses them: QEMU does not know.
func (d *Driver) changeCPUs(ctx context.Context, s *snapshot) error {
	if err := s.attached.guest.ChangeCPUs(ctx, s.cpus); err != nil {
		return err
	}
	if a, vmi, cpus := s.attached, s.presence.VMI, s.cpus; cpus > s.guest.VCPUs {
		d.startHelper(func() { d.announceUnused(ctx, vmi, cpus, a.agent.UsedCPUs) })
	}
	return nil
}

// announceUnused emits an event if the guest does not bring its new CPUs into use. Without an agent that knows, there
// is none.
func (d *Driver) announceUnused(ctx context.Context, vmi *v1.VirtualMachineInstance, cpus int, used func(context.Context) (int, error)) {
	looking, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	var last int
	backoff.Retry(looking, backoff.Doubling(useFirst, useLongest), func(ctx context.Context) bool {
		var err error
		last, err = used(ctx)
		return err != nil || last >= cpus
	})
	if ctx.Err() == nil && looking.Err() != nil && last < cpus {
		d.env.Cluster.Event(vmi, corev1.EventTypeWarning, reasonCPUsNotUsed,
			fmt.Sprintf("The guest uses %d of the %d CPUs that it has: its system has not brought the others into use.", last, cpus))
	}
}

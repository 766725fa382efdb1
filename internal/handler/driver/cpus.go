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
	// usePatience is how long a guest's system may take to bring new CPUs into use, and useFirst and useLongest are
	// the waits between two looks.
	usePatience = 30 * time.Second
	useFirst    = time.Second
	useLongest  = 8 * time.Second

	reasonCPUsNotUsed = "CPUsNotUsed"
)

// observeCPUs finds out whether virtual CPUs are to be plugged or unplugged.
func (d *Driver) observeCPUs(s *snapshot) {
	wanted := d.wantedCPUs(s)
	due, after := s.attached.guest.CPUsDue(wanted)
	if s.cpusAfter = after; due {
		s.cpus = wanted
	}
	s.keptCPUs = s.attached.guest.KeptCPUs()
}

// wantedCPUs is how many virtual CPUs the guest is to have, 0 for those that it has.
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

// failure is what the VMI tells of what its node fails to do, or its guest.
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

// changeCPUs plugs virtual CPUs, or asks the guest for some. When it has got some, its agent is asked whether it
// uses them: QEMU does not know.
func (d *Driver) changeCPUs(ctx context.Context, s *snapshot) error {
	if err := s.attached.guest.ChangeCPUs(ctx, s.cpus); err != nil {
		return err
	}
	if a, vmi, cpus := s.attached, s.presence.VMI, s.cpus; cpus > s.guest.VCPUs {
		d.start(func() { d.announceUnused(ctx, vmi, cpus, a.agent.UsedCPUs) })
	}
	return nil
}

// announceUnused makes an event of CPUs that the guest does not bring into use. A guest without an agent, or with one that
// does not know, says nothing.
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

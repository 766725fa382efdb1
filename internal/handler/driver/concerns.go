package driver

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/cpus"
	"drydock.dev/drydock/internal/handler/concern/links"
	"drydock.dev/drydock/internal/handler/concern/memory"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// addConcerns makes the concerns of a QEMU. Their order is the policy: the first with something to do acts, and the
// others wait for a later round. Links come first, so that they are right before the guest sees them for the first
// time. The guest takes its time with CPUs and memory, so they come last: nothing waits for them.
func (d *Driver) addConcerns(a *attached) {
	a.memory = &memory.Concern{}
	a.concerns = concern.List{
		concern.New(vmihandler.SwitchLinks, links.New()),
		concern.New(vmihandler.ChangeCPUs, cpus.New(cpus.Env{
			Used: a.agent.UsedCPUs, Go: d.startHelper,
			Warn: func(vmi *v1.VirtualMachineInstance, reason, message string) {
				d.env.Cluster.Event(vmi, corev1.EventTypeWarning, reason, message)
			},
		})),
		concern.New(vmihandler.ChangeMemory, a.memory),
	}
}

// roundOf returns the facts that the concerns share. The VMI must be known.
func (d *Driver) roundOf(seen presence.Facts, known guest.Facts) concern.Round {
	r := concern.Round{
		VMI: seen.VMI, Pod: seen.Pod, NICs: known.NICs.Present, RunState: known.RunState, KVM: known.KVM,
		Migrating: known.Migration.UnderWay(), Now: d.env.Now(),
	}
	if podresize.CPUsAnnounced(seen.VMI) || podresize.MemoryAnnounced(seen.VMI) {
		r.Resources = d.podResources(seen.VMI)
	}
	return r
}

func (d *Driver) podResources(vmi *v1.VirtualMachineInstance) *corev1.ResourceRequirements {
	want, err := launcherpod.Resized(vmi, d.env.Settings())
	if err != nil {
		d.log.Info("what the launcher pod is to have is not known", "reason", err.Error())
		return nil
	}
	return &want
}

// decideChanges has the concerns decide about a guest that is at home on this node.
func (d *Driver) decideChanges(s *snapshot) {
	if s.role != vmihandler.Home {
		return
	}
	s.round = d.roundOf(s.presence, s.guest)
	s.concerns = s.attached.concerns.Decide(s.round)
}

// failure returns the problem to show in the VMI's status: a failing step, or a concern's.
func (s *snapshot) failure(step error) error {
	switch {
	case step != nil:
		return step
	case s.concerns.Problem != "":
		return errors.New(s.concerns.Problem)
	}
	return s.nics.Problem()
}

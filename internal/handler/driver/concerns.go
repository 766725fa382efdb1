package driver

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/cpus"
	"drydock.dev/drydock/internal/handler/concern/disks"
	"drydock.dev/drydock/internal/handler/concern/links"
	"drydock.dev/drydock/internal/handler/concern/memory"
	"drydock.dev/drydock/internal/handler/concern/memorydump"
	"drydock.dev/drydock/internal/handler/concern/nics"
	"drydock.dev/drydock/internal/handler/concern/pinning"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// addConcerns makes the concerns of a QEMU. Their order is the policy: the first with something to do acts. Links come
// first: they must be right before the guest sees them. Pinning is quick and never waits for the guest. Disks come next,
// because a guest may wait for them before it starts; nothing waits for CPUs, memory and dumps.
func (d *Driver) addConcerns(a *attached) {
	a.memory = &memory.Concern{}
	pod, preparing := network.Pod{NetNS: a.link.Peer.NetNS}, d.pod
	a.nics = nics.New(nics.Env{
		Connect: preparing.PlugNetwork,
		Build: func(vmi *v1.VirtualMachineInstance, interfaces []network.Interface, name string) (netdev, device machine.Properties, err error) {
			return machine.BuildNIC(preparing.Input(vmi, a.prepared.With(interfaces)), name)
		},
		RemoveLeftovers: func(keep []string) error { return d.env.Network.RemoveLeftovers(pod, keep) }, Now: d.env.Now,
	}, &podQuestions{d.env.Network, preparing}, d.log, a.prepared.Interfaces)
	claims := volumes.Volumes{Namespace: d.namespace, Cluster: d.env.Cluster, Opener: d.env.Volumes, Label: a.prepared.SELinux.Files()}
	a.disks = disks.New(disks.Env{
		Volume: claims.Open, Capacity: claims.Capacity, Event: d.env.Cluster.Event,
		Tolerated: func() int { return d.env.Settings().LessSpaceTolerated },
		Input:     func(vmi *v1.VirtualMachineInstance) machine.Input { return preparing.Input(vmi, a.prepared) },
		Go:        d.helpers.Go, Wake: d.wake, Now: d.env.Now,
	}, d.log)
	a.dumps = memorydump.New(memorydump.Env{Volume: claims.Open, Go: d.helpers.Go, Wake: d.wake, Now: d.env.Now}, d.log)
	a.plugs = concern.New(vmihandler.Plug, a.disks).ForArrivals()
	a.concerns = concern.List{
		concern.New(vmihandler.SwitchLinks, links.New()),
		concern.New(vmihandler.PinCPUs, pinning.New(pinning.Process{Launcher: a.link.Peer.PID, Alive: a.link.Peer.Alive, QEMU: func() int { return a.guest.PID() }})),
		a.plugs,
		concern.New(vmihandler.PlugNICs, a.nics),
		concern.New(vmihandler.ChangeCPUs, cpus.New(cpus.Env{
			Used: a.agent.UsedCPUs, Go: d.helpers.Go,
			Warn: func(vmi *v1.VirtualMachineInstance, reason, message string) {
				d.env.Cluster.Event(vmi, corev1.EventTypeWarning, reason, message)
			},
		})),
		concern.New(vmihandler.ChangeMemory, a.memory),
		concern.New(vmihandler.DumpMemory, a.dumps),
	}
}

// podQuestions implements nics.Pod.
type podQuestions struct {
	network Network
	pod     *preparation.Pod
}

func (p *podQuestions) Disconnected(names []string) ([]string, error) {
	return p.network.Disconnected(network.Pod{NetNS: p.pod.Link.Peer.NetNS}, names)
}

func (p *podQuestions) Devices(vmi *v1.VirtualMachineInstance) (nichotplug.Devices, error) {
	return p.pod.Devices(vmi)
}

// The VMI must be known.
func (d *Driver) roundOf(a *attached, seen presence.Facts, known guest.Facts) concern.Round {
	networks := d.presence.Networks()
	r := concern.Round{
		VMI: seen.VMI, Pod: seen.Pod, AttachmentPods: seen.AttachmentPods, LauncherPod: a.link.Pod,
		Images: a.prepared.Images, Claims: a.prepared.Claims,
		InPod: networks.Attached, PodVersion: networks.Version, NICs: a.nics.Present(),
		RunState: known.RunState, KVM: known.KVM, Halted: known.Halted,
		Migrating: known.Migration.UnderWay(), CopyingDisks: len(known.Jobs) > 0, TargetConnected: d.outgoing.HasConnection(),
		Now: d.env.Now(),
	}
	if vmihandler.RoleOf(seen.VMI, d.env.Node) == vmihandler.Destination && known.Migration.Arriving() {
		r.Arrival = d.incoming.Arrival(seen.VMI)
	}
	if podresize.CPUsAnnounced(seen.VMI) || podresize.MemoryAnnounced(seen.VMI) {
		if want, err := launcherpod.Resized(seen.VMI, d.env.Settings()); err != nil {
			d.log.Info("what the launcher pod is to have is not known", "reason", err.Error())
		} else {
			r.Resources = &want
		}
	}
	return r
}

func takesPart(role vmihandler.Role, r *concern.Round) bool {
	return role == vmihandler.Home || r.Arrival != nil
}

const notObserved vmihandler.Role = -1

// observeChanges returns the role for which the concerns observed.
func (d *Driver) observeChanges(ctx context.Context, a *attached, seen presence.Facts) vmihandler.Role {
	if a == nil || seen.VMI == nil {
		return notObserved
	}
	role, r := vmihandler.RoleOf(seen.VMI, d.env.Node), d.roundOf(a, seen, a.guest.Observe())
	if !takesPart(role, &r) {
		return notObserved
	}
	a.concerns.Observe(ctx, a.guest.Monitor(), r, d.log)
	return role
}

// decideChanges makes the concerns decide. observed is the result of observeChanges.
func (d *Driver) decideChanges(ctx context.Context, s *snapshot, observed vmihandler.Role) {
	if s.role != observed { // its VMI has just become another node's or this one's
		observed = d.observeChanges(ctx, s.attached, s.presence)
	}
	s.round = d.roundOf(s.attached, s.presence, s.guest)
	if observed == notObserved || !takesPart(s.role, &s.round) {
		return
	}
	s.concerns, s.disks = s.attached.concerns.Decide(s.round), s.attached.plugs.Plan()
	for _, step := range s.concerns.Settled {
		d.failures.Clear(step)
	}
}

func (s *snapshot) failure(step error) error {
	switch {
	case step != nil:
		return step
	case s.concerns.Problem != "":
		return errors.New(s.concerns.Problem)
	}
	return nil
}

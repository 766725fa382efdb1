package driver

import (
	"context"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	migrations "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type snapshot struct {
	presence   presence.Facts
	connection connection.Facts
	role       vmihandler.Role
	migration  decision
	progress   *changes
	// attached is nil if there is no QEMU. The next fields are about it.
	attached *attached
	guest    guest.Facts
	agent    guestagent.Facts
	volumes  volumes.Facts
	// plug means that a volume has a step to take; plugAfter and agentAfter are the delays until volumes and agent
	// need another look.
	plug bool
	nics nichotplug.Step
	// concerns is the decision of the guest's concerns, made in round. It is empty while the guest is not at home here.
	concerns              concern.Decided
	round                 concern.Round
	plugAfter, agentAfter time.Duration
	now                   time.Time
}

func (d *Driver) observe(ctx context.Context, linked connection.Facts) snapshot {
	s := snapshot{connection: linked, attached: d.attached.Load()}
	seen := d.presence.Observe()
	if a := s.attached; a != nil && seen.VMI != nil {
		a.guest.Refresh(ctx, seen.VMI.Spec.Domain.Devices.Disks)
	}
	if a := s.attached; a != nil && seen.VMI != nil && vmihandler.RoleOf(seen.VMI, d.env.Node) == vmihandler.Home {
		a.concerns.Observe(ctx, a.guest.Monitor(), d.roundOf(seen, a.guest.Observe()), d.log)
		s.agentAfter = a.agent.Tend(ctx, len(seen.VMI.Spec.Domain.Devices.Interfaces))
		s.plug, s.plugAfter = a.volumes.Tend(ctx, a.guest.Monitor(), volumes.View{
			VMI: seen.VMI, AttachmentPods: seen.AttachmentPods, LauncherPod: a.link.Pod,
			Images: a.prepared.images, Claims: a.prepared.claims, Halted: a.guest.Observe().Halted, Still: migrations.InFlight(seen.VMI),
		})
	}
	d.plugArrivingDisks(ctx, &s, seen)
	d.listenForGuest(ctx, &s, seen)
	d.dropDeadGuest()
	s.presence, s.now = d.presence.Observe(), d.env.Now()
	if s.presence.VMI != nil {
		s.role = vmihandler.RoleOf(s.presence.VMI, d.env.Node)
	}
	if s.attached = d.attached.Load(); s.attached != nil {
		s.guest, s.agent = s.attached.guest.Observe(), s.attached.agent.Observe()
		if s.presence.VMI != nil {
			d.decideChanges(&s)
			s.volumes = s.attached.volumes.Observe(atNode(s.presence.VMI, s.role))
		}
	}
	d.exportPluggedDisks(ctx, &s)
	d.planNICs(&s)
	return s
}

// atNode returns the VMI as it applies to the QEMU of a node: at a migration's target, with the claims that the disks
// are copied to.
func atNode(vmi *v1.VirtualMachineInstance, role vmihandler.Role) *v1.VirtualMachineInstance {
	if role == vmihandler.Destination {
		return volumemigration.Target(vmi)
	}
	return vmi
}

// halt returns nil if the guest's CPUs have been started.
func (s *snapshot) halt() *vmihandler.Halt {
	if s.attached == nil || !s.guest.Halted || s.presence.VMI == nil {
		return nil
	}
	h := vmihandler.DecideHalt(s.presence.VMI, s.volumes.Plugged, s.now)
	return &h
}

func (s *snapshot) observed(node string) vmihandler.Observed {
	o := vmihandler.Observed{
		VMI: s.presence.VMI, Deserted: s.presence.Deserted, Node: node, Pod: s.presence.Pod,
		Link: s.connection.State, Launcher: s.connection.Launcher, ExitedIn: s.connection.ExitedIn, Attached: s.attached != nil,
		Plug: s.plug, PlugAfter: s.plugAfter, Now: s.now,
	}
	if stopping := s.connection.Stopping; stopping != nil {
		o.Stopping, o.StoppingSince = &stopping.Grace, stopping.Since
	}
	if !o.Attached {
		return o
	}
	after := s.guest.After
	if halt := s.halt(); halt != nil {
		o.Halted, o.Begin, after = true, halt.Begin, backoff.Sooner(after, halt.After)
	}
	o.NICs = s.nics.Any()
	o.Change, after = s.concerns.Step, backoff.Sooner(after, s.concerns.After)
	o.RunState, o.Resume, o.PlugAfter = s.guest.RunState, s.guest.Resume, backoff.Sooner(o.PlugAfter, after)
	return o
}

func (s *snapshot) facts(o vmihandler.Observed, failure error) vmihandler.Facts {
	out := vmihandler.Facts{
		Node: o.Node, Exit: s.connection.Exit, Lost: vmihandler.Lost(o), PodReady: o.Pod != nil && o.Pod.Ready,
		PodInterrupted: o.Pod != nil && o.Pod.Interrupted,
		Vanished:       o.Pod != nil && o.Pod.Gone && !o.Pod.Remains && o.Link != vmihandler.LinkUp,
		Failure:        failure, Now: s.now,
	}
	if o.Pod != nil {
		out.Disruption = o.Pod.Disruption
	}
	return out
}

func (s *snapshot) describe(machineType string) *vmihandler.Guest {
	p := s.attached.prepared
	g := &vmihandler.Guest{
		RunState: vmihandler.StatusOf(s.guest.RunState, s.migration.handsOver), Stalled: s.guest.Stalled,
		FailedDisks: s.guest.FailedDisks, PausedByUser: s.guest.PausedByUser,
		Halt:           s.halt(),
		MachineType:    machineType,
		KVM:            s.guest.KVM,
		Volumes:        map[string]vmihandler.Volume{},
		SELinuxContext: p.selinux.Context(),
		Agent:          s.agent.Answer,
		Credentials:    s.agent.Credentials,
		Frozen:         s.connection.Launcher.Frozen,
		Plugged:        s.volumes.Hotplugged,
	}
	g.Interfaces = s.interfaces()
	s.attached.concerns.Report(g)
	for name, image := range p.images {
		g.Volumes[name] = vmihandler.Volume{Size: image.VirtualSize, Grown: s.volumes.Grown[name], Claim: p.claims[name]}
	}
	if state := p.claims[stateclaim.Volume]; state != nil {
		g.Volumes[stateclaim.Volume] = vmihandler.Volume{Claim: state}
	}
	return g
}

func bootOrder(instance *v1.VirtualMachineInstance, v volumes.Facts) []machine.BootIndex {
	return machine.BootIndexes(&instance.Spec, v.Plugged)
}

// decideStatus returns a nil status if the node must not write it.
func (d *Driver) decideStatus(s *snapshot) (vmihandler.Observed, *changes) {
	o := s.observed(d.env.Node)
	_, known := d.env.kvm()
	o.Unprobed = !known
	if o.VMI == nil || o.Deserted {
		return o, nil
	}
	s.migration = d.migrationDecision(s, o)
	o.Migrate = o.Attached && s.migration.actionDue
	if (s.guest.Migration.UnderWay() || len(s.guest.Jobs) > 0) && s.role != vmihandler.Destination {
		o.Plug = false // the target finds the disks that the guest had
	}
	if s.role == vmihandler.Destination {
		_, missing := hotplug.Arrivals(o.VMI, s.presence.AttachmentPods)
		o.Awaits = len(missing) > 0
	}
	if s.role == vmihandler.Former {
		return o, nil // another node owns the status
	}
	facts := s.facts(o, s.failure(d.failures.visible()))
	facts.Source, facts.Target = s.migration.sourceFacts, s.migration.targetFacts
	if s.migration.hidesEnd {
		facts.Exit, facts.Lost, facts.Vanished = nil, false, false
	}
	if s.attached != nil && s.role == vmihandler.Home {
		facts.Guest = s.describe(vmihandler.MachineType(o.VMI, d.env.Settings().MachineType))
	}
	changes := newChanges(o.VMI, facts)
	o.Changed = changes.patch != nil || changes.err != nil
	s.progress = d.progress(s, o, facts)
	return o, changes
}

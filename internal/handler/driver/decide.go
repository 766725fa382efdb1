package driver

import (
	"context"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/disks"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/migration/incoming"
	"drydock.dev/drydock/internal/handler/migration/outgoing"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/vmireport"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type snapshot struct {
	presence   presence.Facts
	connection connection.Facts
	role       vmihandler.Role
	outgoing   outgoing.Decision
	incoming   incoming.Decision
	progress   *vmireport.Changes // of a migration; nil if none is due
	// attached is nil if there is no QEMU. The next fields are about it.
	attached *attached
	guest    guest.Facts
	agent    guestagent.Facts
	// concerns is the decision of the guest's concerns in round, disks that of one of them. Both are empty if the
	// concerns take no part.
	concerns concern.Decided
	disks    disks.Plan
	round    concern.Round
	// They are the delays until the next observation of the agent and of an arriving guest.
	agentAfter, arrivalAfter time.Duration
	now                      time.Time
}

func (d *Driver) observe(ctx context.Context, linked connection.Facts) snapshot {
	s := snapshot{connection: linked, attached: d.attached.Load()}
	seen := d.presence.Observe()
	if a := s.attached; a != nil && seen.VMI != nil {
		a.guest.Refresh(ctx, seen.VMI.Spec.Domain.Devices.Disks)
	}
	if a := s.attached; a != nil && seen.VMI != nil && vmihandler.RoleOf(seen.VMI, d.env.Node) == vmihandler.Home {
		s.agentAfter = a.agent.SyncPolling(ctx, len(seen.VMI.Spec.Domain.Devices.Interfaces))
	}
	observed := d.observeChanges(ctx, s.attached, seen)
	if s.attached != nil && seen.VMI != nil && vmihandler.RoleOf(seen.VMI, d.env.Node) == vmihandler.Destination {
		s.arrivalAfter = d.incoming.Listen(ctx, s.attached.guest)
	}
	d.dropDeadGuest()
	s.presence, s.now = d.presence.Observe(), d.env.Now()
	if s.presence.VMI != nil {
		s.role = vmihandler.RoleOf(s.presence.VMI, d.env.Node)
	}
	if s.attached = d.attached.Load(); s.attached != nil {
		s.guest, s.agent = s.attached.guest.Observe(), s.attached.agent.Observe()
		if s.presence.VMI != nil {
			d.decideChanges(ctx, &s, observed)
		}
	}
	if s.attached != nil && s.role == vmihandler.Destination && s.disks.Received {
		s.arrivalAfter = backoff.Sooner(s.arrivalAfter, d.incoming.ExportPlugged(ctx, s.presence.VMI, s.attached.guest))
	}
	return s
}

// halt returns nil if the guest's CPUs have been started.
func (s *snapshot) halt() *vmihandler.Halt {
	if s.attached == nil || !s.guest.Halted || s.presence.VMI == nil {
		return nil
	}
	h := vmihandler.DecideHalt(s.presence.VMI, s.disks.Plugged, s.now)
	return &h
}

func (s *snapshot) observed(node string) vmihandler.Observed {
	o := vmihandler.Observed{
		VMI: s.presence.VMI, Deserted: s.presence.Deserted, Node: node, Pod: s.presence.Pod,
		Link: s.connection.State, Launcher: s.connection.Launcher, ExitedIn: s.connection.ExitedIn, Attached: s.attached != nil,
		PlugAfter: s.arrivalAfter, Now: s.now,
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
	if after = backoff.Sooner(after, s.concerns.After); s.concerns.Step == vmihandler.Plug {
		o.Plug = true
	} else {
		o.Change = s.concerns.Step
	}
	o.RunState, o.Resume, o.PlugAfter = s.guest.RunState, s.guest.Resume, backoff.Sooner(o.PlugAfter, after)
	return o
}

func (s *snapshot) facts(o vmihandler.Observed, failure error) vmihandler.Facts {
	out := vmihandler.Facts{
		Node: o.Node, Exit: s.connection.Exit, ExitedAt: s.connection.ExitedAt, Lost: vmihandler.Lost(o), PodReady: o.Pod != nil && o.Pod.Ready,
		PodInterrupted: o.Pod != nil && o.Pod.Interrupted,
		Vanished:       o.Pod != nil && o.Pod.Gone && !o.Pod.Remains && o.Link != vmihandler.LinkUp,
		Failure:        failure, Now: s.now,
	}
	if o.Pod != nil {
		out.Disruption, out.PodLasts = o.Pod.Disruption, !o.Pod.Ended && !o.Pod.Gone
	}
	return out
}

func (s *snapshot) guestFacts(machineType string) *vmihandler.Guest {
	p := s.attached.prepared
	g := &vmihandler.Guest{
		RunState: vmihandler.StatusOf(s.guest.RunState, s.outgoing.HandsOver), Stalled: s.guest.Stalled,
		FailedDisks: s.guest.FailedDisks, PausedByUser: s.guest.PausedByUser,
		Halt:           s.halt(),
		MachineType:    machineType,
		KVM:            s.guest.KVM,
		SELinuxContext: p.SELinux.Context(),
		Agent:          s.agent.Answer,
		Credentials:    s.agent.Credentials,
		Frozen:         s.connection.Launcher.Frozen,
	}
	s.attached.concerns.Report(g)
	return g
}

func (d *Driver) observed(s *snapshot) vmihandler.Observed {
	o := s.observed(d.env.Node)
	_, known := d.env.kvm()
	o.Unprobed = !known
	return o
}

// decideStatus returns nil if this node must not write the status. It adds to o.
func (d *Driver) decideStatus(s *snapshot, o *vmihandler.Observed) *vmireport.Changes {
	if o.VMI == nil || o.Deserted {
		return nil
	}
	o.Migrate = o.Attached && s.outgoing.ActionDue || s.incoming.ActionDue
	if s.role == vmihandler.Destination {
		_, missing := hotplug.Arrivals(o.VMI, s.presence.AttachmentPods)
		o.Awaits = len(missing) > 0
	}
	if s.role == vmihandler.Former {
		return nil // another node owns the status
	}
	facts := s.facts(*o, s.failure(d.failures.Visible()))
	facts.Source, facts.Target = s.outgoing.Report, s.incoming.Report
	if s.outgoing.HidesEnd {
		facts.Exit, facts.Lost, facts.Vanished = nil, false, false
	}
	if s.attached != nil && s.role == vmihandler.Home {
		facts.Guest = s.guestFacts(vmihandler.MachineType(o.VMI, d.env.Settings().MachineType, s.guest.MachineType))
	}
	o.ReasonAfter = vmihandler.ReasonAfter(o.VMI, facts)
	changes := vmireport.New(o.VMI, facts)
	o.Changed = changes.Due()
	if progress := s.outgoing.Progress(o.Changed); progress != nil {
		facts.Source = progress
		if c := vmireport.New(o.VMI, facts); c.Writable() {
			s.progress = c
		}
	}
	return changes
}

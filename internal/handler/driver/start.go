package driver

import (
	"context"
	"sync/atomic"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// start collects the facts for the trace of a guest's start.
type start struct {
	facts   starttrace.Facts
	listens bool // to the console
	// line is set once the console has written a line, or never will.
	line atomic.Pointer[line]
}

type line struct {
	at time.Time
	ok bool
}

func newStart(env *Env, first *v1.VirtualMachineInstance) *start {
	if env.Traced == nil || !starttrace.Traced(first.Status.Phase) || vmihandler.RoleOf(first, env.Node) != vmihandler.Home {
		return nil
	}
	return &start{facts: starttrace.Facts{
		Namespace: first.Namespace, Name: first.Name, UID: first.UID, Node: env.Node,
		Created: first.CreationTimestamp.Time, Shown: env.Now(),
	}}
}

func (t *start) prepared(p *preparation.Prepared) {
	if t != nil {
		t.facts.Network, t.facts.Disks, t.facts.QEMU.Begin = p.Network, p.Disks, p.Launched
	}
}

// traceStart sends the trace of the guest's start when it is complete, and otherwise returns when to look again.
func (d *Driver) traceStart(ctx context.Context, s *snapshot) time.Duration {
	if d.start == nil || s.presence.VMI == nil {
		return 0
	}
	d.observeStart(s)
	d.listenForLine(ctx)
	due, after := d.start.facts.Due(s.now)
	if due {
		d.env.Traced(starttrace.Spans(&d.start.facts))
		d.start = nil
	}
	return after
}

func (d *Driver) observeStart(s *snapshot) {
	f := &d.start.facts
	if s.connection.Link != nil && f.Connected.IsZero() {
		f.Connected = s.now
		at, err := s.connection.Link.Peer.Started(s.now)
		if err != nil {
			d.log.V(1).Info("the start of virt-launcher is not traced", "reason", err.Error())
		}
		f.LauncherStarted = at
	}
	f.PodCreated, f.Scheduled = d.presence.PodTimes()
	if s.attached != nil {
		f.Accelerator = nodeprobe.TCG
		if s.guest.KVM {
			f.Accelerator = nodeprobe.KVM
		}
		if f.QEMU.End.IsZero() && !f.QEMU.Begin.IsZero() {
			f.QEMU.End = s.now
		}
	}
	status := &s.presence.VMI.Status
	switch {
	case s.presence.VMI.IsFinal():
		f.Ended, f.Reason = s.now, status.Reason
	case status.Phase == v1.Running && f.Running.IsZero():
		f.Running = s.now
	}
	if said := d.start.line.Load(); said != nil {
		f.FirstLine, f.Mute = said.at, !said.ok
	}
}

func (d *Driver) listenForLine(ctx context.Context) {
	if d.start.listens {
		return
	}
	guest, err := d.runningGuest()
	if err != nil {
		return
	}
	d.start.listens = true
	said := &d.start.line
	d.helpers.Go(func() {
		at, ok := d.env.FirstLine(ctx, guest)
		if ctx.Err() == nil {
			said.Store(&line{at, ok})
			d.wake()
		}
	})
}

package driver

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/migration/incoming"
	"drydock.dev/drydock/internal/handler/migration/outgoing"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// sendingQEMU returns the QEMU that may send its guest, nil without a QEMU.
func (a *attached) sendingQEMU() *outgoing.QEMU {
	if a == nil {
		return nil
	}
	return &outgoing.QEMU{Source: handover.SourceOf(a.guest), Copies: diskcopy.Of(a.guest), Link: a.link, Images: a.prepared.Images, Memory: a.memory.LastKnown}
}

// receivingQEMU returns the QEMU that a guest has come to.
func (a *attached) receivingQEMU(pod *preparation.Pod, vmi *v1.VirtualMachineInstance) *incoming.QEMU {
	return &incoming.QEMU{
		Target: handover.TargetOf(a.guest), NetNS: a.link.Peer.NetNS, NICs: a.nics.Present(),
		UseTPM: func(of types.UID) error { return pod.UseIncomingTPM(vmi, of) },
	}
}

// dialLinked returns a function that connects to a socket in the pod that is linked when it is called. QEMU's monitor need
// not answer.
func dialLinked(pod *atomic.Pointer[connection.Link]) func(ctx context.Context, socket string) (*net.UnixConn, error) {
	return func(ctx context.Context, socket string) (*net.UnixConn, error) {
		link := pod.Load()
		if link == nil {
			return nil, errors.New("the pod whose QEMU is to take the guest has ended")
		}
		return link.Dial(ctx, socket)
	}
}

// syncMigrations opens the connections of the VMI's migration and closes all others.
func (d *Driver) syncMigrations(ctx context.Context, s *snapshot) {
	vmi, state := s.presence.VMI, (*v1.VirtualMachineInstanceMigrationState)(nil)
	if vmi != nil && !s.presence.Deserted && d.env.Migration != nil {
		state = vmi.Status.MigrationState
	}
	if state != nil && state.Failed {
		state = nil
	}
	arrives := s.role == vmihandler.Destination
	d.outgoing.Sync(ctx, vmi, state, !arrives && state != nil && state.SourceNode == d.env.Node, s.attached.sendingQEMU())
	d.incoming.Sync(vmi, state, arrives, s.attached != nil || s.connection.Launcher.Arrival.Broken)
}

func (d *Driver) decideMigrations(s *snapshot, o vmihandler.Observed) {
	if o.VMI == nil || o.Deserted || d.env.Migration == nil {
		return
	}
	switch m := o.VMI.Status.MigrationState; {
	case m == nil:
	case s.role == vmihandler.Destination:
		s.incoming = d.incoming.Decide(d.incoming.Observe(incoming.Facts{
			Observed: o, Exit: s.connection.Exit, Guest: s.guest.Migration, Silent: s.guest.Silent, Address: d.env.Migration.Address(),
		}))
	case m.SourceNode == d.env.Node:
		f := outgoing.Facts{
			Observed: o, Home: s.role == vmihandler.Home, Exit: s.connection.Exit, Guest: s.guest,
			DisksFixed: s.disks.Fixed, Plugs: s.disks.Plugs, Concerns: s.concerns, Ending: d.link == nil || d.link.EndsAtOnce(),
		}
		if s.attached != nil {
			f.Images = s.attached.prepared.Images
		}
		s.outgoing = d.outgoing.Decide(d.outgoing.Observe(f))
	}
}

// tellMigrations sends the decided facts to the other node.
func (d *Driver) tellMigrations(s *snapshot) {
	d.outgoing.Tell(&s.outgoing)
	d.incoming.Tell(&s.incoming)
}

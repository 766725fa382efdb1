package incoming

import (
	"context"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Listen makes QEMU wait for its guest with the supported part of the offered transport, and tells the source, without
// which the target is not ready (decision 360). It returns the delay until the next attempt, 0 if none is due.
func (m *Migration) Listen(ctx context.Context, g *guest.Guest) time.Duration {
	target := m.target
	if target == nil || target.Agreed() {
		return 0
	}
	offer, heard := target.Offered()
	if known := g.Observe().Migration; !heard || !known.Arriving() {
		return 0
	}
	failure := &m.listenFailure
	if failure.RemainingDelay(vmihandler.Attach, m.env.Now()) == 0 {
		taken, err := handover.TargetOf(g).Listen(ctx, layout.Socket(layout.MigrationSocket), offer.Accepted(m.env.CPUs))
		failure.Record(vmihandler.Attach, err, m.env.Now())
		if err == nil {
			m.env.Log.Info("QEMU waits for its guest", "channels", taken.Channels)
			target.Agree(taken)
			return 0
		}
		m.env.Log.Info("QEMU does not wait for its guest yet", "reason", err.Error())
	}
	return failure.RemainingDelay(vmihandler.Attach, m.env.Now())
}

// Export makes a waiting QEMU accept the content of the disks with which it was started.
func Export(ctx context.Context, vmi *v1.VirtualMachineInstance, g *guest.Guest) error {
	return diskcopy.Of(g).Export(ctx, layout.Socket(layout.DisksSocket), mirrorsBy(vmi, false))
}

// ExportPlugged makes a waiting QEMU accept the content of its plugged disks, when it has all, and tells the source,
// which copies nothing before. It returns the delay until the next attempt, 0 if none is due.
func (m *Migration) ExportPlugged(ctx context.Context, vmi *v1.VirtualMachineInstance, g *guest.Guest) time.Duration {
	if m.target == nil || m.exported {
		return 0
	}
	failure := &m.exportFailure
	if left := failure.RemainingDelay(vmihandler.Attach, m.env.Now()); left > 0 {
		return left
	}
	err := diskcopy.Of(g).Export(ctx, layout.Socket(layout.DisksSocket), mirrorsBy(vmi, true))
	failure.Record(vmihandler.Attach, err, m.env.Now())
	if err != nil {
		m.env.Log.Info("QEMU does not take the content of plugged disks yet", "reason", err.Error())
		return failure.RemainingDelay(vmihandler.Attach, m.env.Now())
	}
	m.exported = true
	m.target.TellPlugged()
	return 0
}

// mirrorsBy returns the copied disks that were plugged, or those that were not.
func mirrorsBy(vmi *v1.VirtualMachineInstance, plugged bool) []machine.Mirror {
	return slices.DeleteFunc(machine.Mirrors(vmi), func(m machine.Mirror) bool { return m.Plugged != plugged })
}

package driver

import (
	"cmp"
	"context"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// listenForGuest makes QEMU wait for its guest with the source's offered transport, as far as this node supports it.
// The target is not ready before the source is told, however long it takes (decision 360).
func (d *Driver) listenForGuest(ctx context.Context, s *snapshot, seen presence.Facts) {
	a, target := s.attached, d.moving.target
	if a == nil || target == nil || seen.VMI == nil || target.Agreed() || vmihandler.RoleOf(seen.VMI, d.env.Node) != vmihandler.Destination {
		return
	}
	offer, heard := target.Offered()
	if known := a.guest.Observe().Migration; !heard || !known.Arriving() {
		return
	}
	failure := &d.moving.listenFailure
	if failure.remainingDelay(vmihandler.Attach, d.env.Now()) == 0 {
		taken, err := a.guest.Listen(ctx, layout.Socket(layout.MigrationSocket), offer.Accepted(d.env.Migration.CPUs))
		failure.record(vmihandler.Attach, err, d.env.Now())
		if err == nil {
			d.log.Info("QEMU waits for its guest", "channels", taken.Channels)
			target.Agree(taken)
			return
		}
		d.log.Info("QEMU does not wait for its guest yet", "reason", err.Error())
	}
	s.arrivalAfter = backoff.Sooner(s.arrivalAfter, failure.remainingDelay(vmihandler.Attach, d.env.Now()))
}

// limitsOf returns the limits of a migration of memory and moving disks, whether or not the target supports post-copy.
func (s *snapshot) limitsOf(vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigrationState) switchover.Limits {
	size := machine.GuestMemory(&vmi.Spec)
	if s.attached != nil {
		for _, disk := range machine.Mirrors(vmi) {
			size += max(0, min(cmp.Or(s.attached.prepared.images[disk.Volume].VirtualSize, volumemigration.SizeOf(vmi, disk.Volume)), maxDisk))
		}
	}
	return switchover.LimitsOf(m.VMIMConfigurationOptions, size)
}

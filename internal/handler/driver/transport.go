package driver

import (
	"cmp"
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func (d *Driver) transportOffer(s *snapshot, vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigrationState) switchover.Transport {
	return switchover.OfferOf(s.limitsOf(vmi, m), machine.GuestMemory(&vmi.Spec), d.env.Migration.CPUs)
}

// listenForGuest makes QEMU wait for its guest with the source's offered transport, as far as this node supports it,
// and tells the source the result. The target is not ready before that, however long it takes (decision 360).
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

// limitsOf returns the limits of a migration of memory and moving disks. Whether the target supports post-copy is
// decided elsewhere.
func (s *snapshot) limitsOf(vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigrationState) switchover.Limits {
	size := machine.GuestMemory(&vmi.Spec)
	if s.attached != nil {
		for _, disk := range machine.Mirrors(vmi) {
			size += max(0, min(cmp.Or(s.attached.prepared.images[disk.Volume].VirtualSize, volumemigration.SizeOf(vmi, disk.Volume)), maxDisk))
		}
	}
	return switchover.LimitsOf(m.VMIMConfigurationOptions, size)
}

// exportBootDisks makes QEMU accept the content of the disks that it was started with for a migration.
// exportPluggedDisks does the same for plugged disks.
func (d *Driver) exportBootDisks(ctx context.Context, a *attached, instance *v1.VirtualMachineInstance) error {
	if m := a.guest.Observe().Migration; !m.Arriving() {
		return nil
	}
	if err := a.guest.Export(ctx, layout.Socket(layout.DisksSocket), mirrorsBy(instance, false)); err != nil {
		return fmt.Errorf("attaching to a QEMU that waits for its guest: %w", err)
	}
	return nil
}

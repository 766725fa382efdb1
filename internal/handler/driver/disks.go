package driver

import (
	"context"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
)

// tellDisks has the target of a migration hear which disks the guest has beside those that it was
// started with, as long as nothing has been sent.
func tellDisks(source *migration.Source, plugs *nodehotplug.Plugs) {
	if len(plugs.Detached) > 0 {
		source.Refuse(fmt.Sprintf("the guest still has the disks of volumes that were taken from it by force (%s): "+
			"it can be migrated when it has released them or was restarted", strings.Join(plugs.Detached, ", ")))
		return
	}
	disks := make([]migrationwire.Disk, 0, len(plugs.Disks))
	for _, d := range plugs.Disks {
		disks = append(disks, migrationwire.Disk{Volume: d.Volume, Bus: string(d.Place.Bus), Number: d.Place.Number})
	}
	if !source.TellDisks(disks) {
		source.Refuse("the guest has released a disk while its migration was prepared")
	}
}

// receiveDisks looks at the disks that come with a guest, as long as QEMU waits for it.
func (d *Driver) receiveDisks(ctx context.Context, s *snapshot, seen presence.Facts) {
	a, target := s.attached, d.moving.target
	if a == nil || target == nil || seen.VMI == nil || guestlifecycle.RoleOf(seen.VMI, d.env.Node) != guestlifecycle.Destination {
		return
	}
	if known := a.guest.Observe().Migration; !known.Arriving() {
		return
	}
	arrival := volumes.Arrival{VMI: seen.VMI, AttachmentPods: seen.AttachmentPods}
	for _, disk := range target.Disks() {
		place := machine.Slot{Bus: v1.DiskBus(disk.Bus), Number: disk.Number}
		arrival.Disks = append(arrival.Disks, nodehotplug.PluggedDisk{Volume: disk.Volume, Place: place})
	}
	s.plug, s.plugAfter = a.volumes.Receive(ctx, a.guest.Monitor(), arrival)
}

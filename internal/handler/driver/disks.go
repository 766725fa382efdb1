package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Call it only before any memory is sent.
func sendPluggedDisks(source *migration.Source, plugs *nodehotplug.Plugs) {
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

// exportPluggedDisks makes the QEMU that waits for a guest accept the content of its plugged disks. The source copies
// nothing before it is told.
func (d *Driver) exportPluggedDisks(ctx context.Context, s *snapshot) {
	target := d.moving.target
	if target == nil || s.attached == nil || s.role != vmihandler.Destination || !s.disks.Received || d.moving.plugged {
		return
	}
	failure := &d.moving.exportFailure
	if left := failure.remainingDelay(vmihandler.Attach, d.env.Now()); left > 0 {
		s.arrivalAfter = backoff.Sooner(s.arrivalAfter, left)
		return
	}
	err := s.attached.guest.Export(ctx, layout.Socket(layout.DisksSocket), mirrorsBy(s.presence.VMI, true))
	failure.record(vmihandler.Attach, err, d.env.Now())
	if err != nil {
		d.log.Info("QEMU does not take the content of plugged disks yet", "reason", err.Error())
		s.arrivalAfter = backoff.Sooner(s.arrivalAfter, failure.remainingDelay(vmihandler.Attach, d.env.Now()))
		return
	}
	d.moving.plugged = true
	target.TellPlugged()
}

// mirrorsBy returns the disks that move with the guest: only the plugged or only the other ones.
func mirrorsBy(vmi *v1.VirtualMachineInstance, plugged bool) []machine.Mirror {
	return slices.DeleteFunc(machine.Mirrors(vmi), func(m machine.Mirror) bool { return m.Plugged != plugged })
}

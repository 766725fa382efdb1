package diskhotplug

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"drydock.dev/drydock/internal/qemu/qmp"
)

const peripherals = "/machine/peripheral"

// Force takes a disk from a guest that does not release it. It removes a medium from its drive. A device stays in the
// guest, with the node detached behind it; the disk is then Partial. It can be repeated (decision 155).
func Force(ctx context.Context, m Monitor, d Disk, detached string) error {
	if d.Stage != Plugged {
		return nil
	}
	if d.Drive {
		if err := openTray(ctx, m, d.Device, true); err != nil {
			return err
		}
		return d.removeMedium(ctx, m)
	}
	if err := d.insertDetached(ctx, m, detached); err != nil {
		return err
	}
	return m.Execute(ctx, "qom-set", Properties{"path": path.Join(peripherals, d.Device), "property": "drive", "value": detached}, nil)
}

// insertDetached creates the missing parts of the replacement. Its node has size zero rather than failing: virtio itself
// answers requests beyond a disk's end, before the disk's error policy, which may stop the guest. A flush succeeds: nothing
// was written to this node, and closing the disk's node flushes that one.
func (d *Disk) insertDetached(ctx context.Context, m Monitor, node string) error {
	tag := d.Tag
	tag.Detached, tag.Nodes = true, []string{node}
	if d.detached == nil {
		nothing, err := os.Open(os.DevNull)
		if err != nil {
			return fmt.Errorf("opening what has no content: %w", err)
		}
		defer nothing.Close()
		if _, err := add(ctx, m, tag, nothing); err != nil {
			return err
		}
	}
	if d.detached != nil && slices.Contains(d.detached.nodes, node) {
		return nil
	}
	return m.Execute(ctx, "blockdev-add", Properties{"driver": "null-co", "node-name": node, "size": 0}, nil)
}

func (d *Disk) isBehindDevice(ctx context.Context, m Query, devices map[string]bool) (bool, error) {
	if !devices[d.Device] {
		return false, nil
	}
	var node string
	err := m.Execute(ctx, "qom-get", Properties{"path": path.Join(peripherals, d.Device), "property": "drive"}, &node)
	if refusal := (*qmp.Error)(nil); errors.As(err, &refusal) && refusal.Class == "DeviceNotFound" {
		return false, nil // the guest has just released it
	}
	return slices.Contains(d.Nodes, node), err
}

// merge combines a disk and its replacement. A remaining disk takes precedence, since it must be cleared first.
func (d *Disk) merge(disk Disk, serves bool) Disk {
	switch {
	case disk.Stage == Absent && serves:
		d.Stage = Detached
		return *d
	case disk.Stage == Absent:
		d.Stage = Partial
		return *d
	case serves:
		disk.Stage = Partial
	}
	disk.detached = d
	return disk
}

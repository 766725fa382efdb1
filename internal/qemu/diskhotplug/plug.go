package diskhotplug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// undoTimeout bounds undoing a failed step, whose context may have ended.
const undoTimeout = 10 * time.Second

// Properties are the arguments of blockdev-add or device_add.
type Properties = map[string]any

// Parts are the parts of a disk. Blockdevs are in the order of Tag.Nodes. Device is nil for a medium in a drive.
type Parts struct {
	Blockdevs []Properties
	Device    Properties
}

// Plug adds a disk to QEMU. parts returns its parts for the path by which QEMU opens the file. If a step fails, the
// earlier ones are undone. The file remains the caller's.
func Plug(ctx context.Context, m Monitor, tag Tag, file *os.File, parts func(path string) (Parts, error)) error {
	set, err := add(ctx, m, tag, file)
	if err != nil {
		return err
	}
	disk := Disk{Tag: tag, sets: []int64{set}}
	if err := disk.build(ctx, m, file, parts); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return errors.Join(err, Clear(undo, m, disk))
	}
	return nil
}

func add(ctx context.Context, m Monitor, tag Tag, file *os.File) (set int64, err error) {
	text, err := json.Marshal(tag)
	if err != nil {
		return 0, fmt.Errorf("encoding a tag: %w", err)
	}
	var added struct {
		Set int64 `json:"fdset-id"`
	}
	err = m.ExecuteWithFile(ctx, "add-fd", Properties{"opaque": prefix + string(text)}, file, &added)
	return added.Set, err
}

func (d *Disk) build(ctx context.Context, m Monitor, file *os.File, parts func(string) (Parts, error)) error {
	made, err := parts(fmt.Sprintf("/dev/fdset/%d", d.sets[0]))
	if err != nil {
		return err
	}
	if err := setDirect(file, made.Blockdevs); err != nil {
		return err
	}
	for i, blockdev := range made.Blockdevs {
		if err := m.Execute(ctx, "blockdev-add", blockdev, nil); err != nil {
			return err
		}
		d.nodes = append(d.nodes, d.Nodes[i])
	}
	if !d.Drive {
		return m.Execute(ctx, "device_add", made.Device, nil)
	}
	// If the guest has locked the tray, QEMU asks it to open the tray, and the insertion fails until it has.
	if err := openTray(ctx, m, d.Device, false); err != nil {
		return err
	}
	medium := Properties{"id": d.Device, "node-name": d.Nodes[len(d.Nodes)-1]}
	if err := m.Execute(ctx, "blockdev-insert-medium", medium, nil); err != nil {
		return err
	}
	return CloseTray(ctx, m, d.Device)
}

// setDirect lets the file bypass the page cache if a block node is to. From 9.1 on, QEMU takes a descriptor only if it
// agrees with the node in that. QEMU's descriptor and the caller's share the flag.
func setDirect(file *os.File, blockdevs []Properties) error {
	text, err := json.Marshal(blockdevs)
	if err != nil {
		return fmt.Errorf("encoding a disk: %w", err)
	}
	var nodes []struct{ Cache struct{ Direct bool } }
	if err := json.Unmarshal(text, &nodes); err != nil {
		return fmt.Errorf("reading how a disk is cached: %w", err)
	}
	wanted := 0
	for _, node := range nodes {
		if node.Cache.Direct {
			wanted = unix.O_DIRECT
		}
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("setting how a disk is cached: %w", err)
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(fd, unix.F_SETFL, flags&^unix.O_DIRECT|wanted)
		}
		refused = err
	})
	if err = errors.Join(err, refused); err != nil {
		return fmt.Errorf("setting how a disk is cached: %w", err)
	}
	return nil
}

// openTray opens a drive's tray. If the guest has locked it, QEMU only asks the guest, unless force is set.
func openTray(ctx context.Context, m Monitor, device string, force bool) error {
	return m.Execute(ctx, "blockdev-open-tray", Properties{"id": device, "force": force}, nil)
}

// CloseTray closes a drive's tray, with or without a medium.
func CloseTray(ctx context.Context, m Monitor, device string) error {
	return m.Execute(ctx, "blockdev-close-tray", Properties{"id": device}, nil)
}

// Ask asks the guest to release a disk. QEMU sends DEVICE_DELETED when it has. After DEVICE_TRAY_MOVED, for a medium,
// another Ask removes the medium.
func Ask(ctx context.Context, m Monitor, d Disk) error {
	if d.Stage != Plugged && d.Stage != Detached {
		return nil
	}
	if !d.Drive {
		err := m.Execute(ctx, "device_del", Properties{"id": d.Device}, nil)
		if refusal := (*qmp.Error)(nil); errors.As(err, &refusal) &&
			(refusal.Class == "DeviceNotFound" || strings.Contains(refusal.Desc, "already in the process of unplug")) {
			return nil // it is gone, or the guest has not decided yet
		}
		return err
	}
	if err := openTray(ctx, m, d.Device, false); err != nil {
		return err
	}
	if d.Locked && !d.TrayOpen {
		return nil
	}
	return d.removeMedium(ctx, m)
}

func (d *Disk) removeMedium(ctx context.Context, m Monitor) error {
	if err := m.Execute(ctx, "blockdev-remove-medium", Properties{"id": d.Device}, nil); err != nil {
		return err
	}
	return CloseTray(ctx, m, d.Device)
}

// Clear removes the rest of a disk that the guest does not have, or has released. It can be repeated.
func Clear(ctx context.Context, m Monitor, d Disk) error {
	var errs []error
	for _, node := range slices.Backward(d.nodes) {
		errs = append(errs, m.Execute(ctx, "blockdev-del", Properties{"node-name": node}, nil))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, set := range d.sets {
		errs = append(errs, m.Execute(ctx, "remove-fd", Properties{"fdset-id": set}, nil))
	}
	return errors.Join(errs...)
}

// Resize sets a disk's size in bytes.
func Resize(ctx context.Context, m Monitor, node string, size int64) error {
	return m.Execute(ctx, "block_resize", Properties{"node-name": node, "size": size}, nil)
}

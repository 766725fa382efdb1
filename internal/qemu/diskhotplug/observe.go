package diskhotplug

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Query is the part of QEMU's monitor that Observe needs, for commands that change nothing.
type Query interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// Monitor is the used part of *qmp.Client.
type Monitor interface {
	Query
	ExecuteWithFile(ctx context.Context, command string, args any, file *os.File, result any) error
}

// Tag describes a descriptor's disk. QEMU keeps it with the descriptor.
type Tag struct {
	Volume string `json:"volume"`
	Claim  string `json:"claim"`
	// Bus and Number are the disk's slot.
	Bus      string   `json:"bus,omitempty"`
	Number   int      `json:"number,omitempty"`
	Device   string   `json:"device"` // the ID of the disk, or of a medium's drive
	Drive    bool     `json:"drive,omitempty"`
	Nodes    []string `json:"nodes"`            // the block nodes in the order of their creation
	Detached bool     `json:"hollow,omitempty"` // the replacement of a disk taken by force
}

const prefix = "drydock:"

// Stage is the progress of a disk.
type Stage string

// Absent means that QEMU has nothing of the disk.
const (
	Absent Stage = ""
	// Partial means that QEMU has the file, but the guest no disk.
	Partial Stage = "Partial"
	// Plugged means that the guest has the disk, and may be using it.
	Plugged Stage = "Plugged"
	// Detached means that the guest has a device whose disk was taken by force: the file is closed, and all requests
	// to the device fail.
	Detached Stage = "Detached"
)

// Disk is the state of a disk in QEMU.
type Disk struct {
	Tag
	Stage            Stage
	Size             int64 // guest-visible, in bytes
	Bare             bool  // QEMU has only the file of a Partial disk
	TrayOpen, Locked bool

	// sets are the descriptor sets with this Tag's volume. A second one is a dead virt-handler's.
	sets     []int64
	nodes    []string
	detached *Disk
}

// Observe returns the disks that were plugged into QEMU, by volume.
func Observe(ctx context.Context, m Query) (map[string]Disk, error) {
	disks, detached, err := tagged(ctx, m)
	if err != nil || len(disks)+len(detached) == 0 {
		return disks, err
	}
	sizes, err := blockNodes(ctx, m)
	if err != nil {
		return nil, err
	}
	present, err := devices(ctx, m)
	if err != nil {
		return nil, err
	}
	drives, err := drives(ctx, m)
	if err != nil {
		return nil, err
	}
	for name, disk := range disks {
		disk.setNodes(sizes)
		disk.setStage(present, drives)
		disks[name] = disk
	}
	for name, detached := range detached {
		detached.setNodes(sizes)
		serves, err := detached.isBehindDevice(ctx, m, present)
		if err != nil {
			return nil, err
		}
		disks[name] = detached.merge(disks[name], serves)
	}
	return disks, nil
}

func devices(ctx context.Context, m Query) (map[string]bool, error) {
	var list []struct {
		Name string `json:"name"`
	}
	if err := m.Execute(ctx, "qom-list", map[string]any{"path": peripherals}, &list); err != nil {
		return nil, err
	}
	present := map[string]bool{}
	for _, d := range list {
		present[d.Name] = true
	}
	return present, nil
}

func (d *Disk) setNodes(sizes map[string]int64) {
	for _, node := range d.Nodes {
		if size, ok := sizes[node]; ok {
			d.nodes, d.Size = append(d.nodes, node), size
		}
	}
}

func (d *Disk) setStage(devices map[string]bool, drives map[string]drive) {
	d.Stage = Partial
	top := ""
	d.Bare = len(d.nodes) == 0 && !devices[d.Device]
	if len(d.Nodes) > 0 {
		top = d.Nodes[len(d.Nodes)-1]
	}
	if !d.Drive {
		if devices[d.Device] {
			d.Stage = Plugged
		}
		return
	}
	drive := drives[d.Device]
	d.TrayOpen, d.Locked = drive.TrayOpen, drive.Locked
	if drive.Inserted.Node == top && top != "" {
		d.Stage = Plugged
	}
}

type set struct {
	ID  int64 `json:"fdset-id"`
	FDs []struct {
		Opaque string `json:"opaque"`
	} `json:"fds"`
}

func tagged(ctx context.Context, m Query) (disks, detached map[string]Disk, err error) {
	var sets []set
	if err := m.Execute(ctx, "query-fdsets", nil, &sets); err != nil {
		return nil, nil, err
	}
	// The newest set must come last; QEMU specifies no order.
	slices.SortFunc(sets, func(a, b set) int { return cmp.Compare(a.ID, b.ID) })
	disks, detached = map[string]Disk{}, map[string]Disk{}
	for _, set := range sets {
		for _, fd := range set.FDs {
			text, ok := strings.CutPrefix(fd.Opaque, prefix)
			if !ok {
				continue
			}
			var tag Tag
			if err := json.Unmarshal([]byte(text), &tag); err != nil {
				return nil, nil, fmt.Errorf("reading what QEMU keeps of a descriptor: %w", err)
			}
			list := disks
			if tag.Detached {
				list = detached
			}
			disk := list[tag.Volume]
			disk.Tag, disk.sets = tag, append(disk.sets, set.ID)
			list[tag.Volume] = disk
		}
	}
	return disks, detached, nil
}

func blockNodes(ctx context.Context, m Query) (map[string]int64, error) {
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		} `json:"image"`
	}
	if err := m.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, n := range nodes {
		sizes[n.Name] = n.Image.Size
	}
	return sizes, nil
}

type drive struct {
	Device   string `json:"qdev"`
	TrayOpen bool   `json:"tray_open"`
	Locked   bool   `json:"locked"`
	Inserted struct {
		Node string `json:"node-name"`
	} `json:"inserted"`
}

func drives(ctx context.Context, m Query) (map[string]drive, error) {
	var list []drive
	if err := m.Execute(ctx, "query-block", nil, &list); err != nil {
		return nil, err
	}
	byID := map[string]drive{}
	for _, d := range list {
		byID[d.Device] = d
	}
	return byID, nil
}

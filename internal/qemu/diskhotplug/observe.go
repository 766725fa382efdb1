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

// Monitor is QEMU's, as far as it is needed here (*qmp.Client).
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
	ExecuteWithFile(ctx context.Context, command string, args any, file *os.File, result any) error
}

// Tag says whose a descriptor is, for as long as QEMU has it.
type Tag struct {
	// Volume and Claim are the names of both.
	Volume string `json:"volume"`
	Claim  string `json:"claim"`
	// Bus and Number are where the disk is plugged.
	Bus    string `json:"bus,omitempty"`
	Number int    `json:"number,omitempty"`
	// Device is the id of the disk, or of the drive that the medium is for.
	Device string `json:"device"`
	Drive  bool   `json:"drive,omitempty"`
	// Nodes are the block nodes, in the order in which they are made.
	Nodes []string `json:"nodes"`
	// Detached marks what is put behind a device whose disk is taken by force.
	Detached bool `json:"hollow,omitempty"`
}

// prefix marks the descriptors that have a Tag.
const prefix = "drydock:"

// Stage is how far a disk got.
type Stage string

const (
	// Absent means that QEMU has nothing of it.
	Absent Stage = ""
	// Partial means that QEMU has the file, but the guest has no disk.
	Partial Stage = "Partial"
	// Plugged means that the guest has the disk, and may be using it.
	Plugged Stage = "Plugged"
	// Detached means that the guest has a device whose disk was taken by force: the
	// file is closed, and all that the guest asks of the device fails.
	Detached Stage = "Detached"
)

// Disk is a disk as QEMU has it.
type Disk struct {
	Tag
	Stage Stage
	// Size is what the guest sees, in bytes.
	Size int64
	// Bare means that all that QEMU has of a Partial disk is the file.
	Bare bool
	// TrayOpen and Locked are a drive's.
	TrayOpen, Locked bool

	// sets are the descriptor sets with this Tag's volume. There is more than
	// one only when a virt-handler died and its successor did not look.
	sets []int64
	// nodes are those of Tag.Nodes that exist.
	nodes []string
	// detached is what there is already to be put in this disk's place.
	detached *Disk
}

// Observe reads from QEMU which disks were plugged into it, by volume.
func Observe(ctx context.Context, m Monitor) (map[string]Disk, error) {
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
		disk.find(sizes)
		disk.judge(present, drives)
		disks[name] = disk
	}
	for name, detached := range detached {
		detached.find(sizes)
		serves, err := detached.serves(ctx, m, present)
		if err != nil {
			return nil, err
		}
		disks[name] = detached.merge(disks[name], serves)
	}
	return disks, nil
}

// devices are those that can be unplugged, by id.
func devices(ctx context.Context, m Monitor) (map[string]bool, error) {
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

// find finds the block nodes that there are.
func (d *Disk) find(sizes map[string]int64) {
	for _, node := range d.Nodes {
		if size, ok := sizes[node]; ok {
			d.nodes, d.Size = append(d.nodes, node), size
		}
	}
}

func (d *Disk) judge(devices map[string]bool, drives map[string]drive) {
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

// set is a descriptor set of QEMU's.
type set struct {
	ID  int64 `json:"fdset-id"`
	FDs []struct {
		Opaque string `json:"opaque"`
	} `json:"fds"`
}

// tagged lists the descriptors that have a Tag: those of disks, and those of
// what is put in their places.
func tagged(ctx context.Context, m Monitor) (disks, detached map[string]Disk, err error) {
	var sets []set
	if err := m.Execute(ctx, "query-fdsets", nil, &sets); err != nil {
		return nil, nil, err
	}
	// The newest set comes last, whatever order QEMU keeps.
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

// blockNodes gives the sizes of all block nodes.
func blockNodes(ctx context.Context, m Monitor) (map[string]int64, error) {
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

// drive is a device with a medium that can be exchanged.
type drive struct {
	Device   string `json:"qdev"`
	TrayOpen bool   `json:"tray_open"`
	Locked   bool   `json:"locked"`
	Inserted struct {
		Node string `json:"node-name"`
	} `json:"inserted"`
}

func drives(ctx context.Context, m Monitor) (map[string]drive, error) {
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

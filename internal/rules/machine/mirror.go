package machine

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Mirror is a disk that moves with its guest: QEMU at the target exports it, and QEMU at the source copies it there.
type Mirror struct {
	Volume string
	// Node is the block node that is copied and exported; Copy is the node at the source that reaches the target.
	Node, Copy string
	// Whole means that more is copied than the guest's writes above an image that is the same on every node.
	Whole bool
	// Slice is the source's node that limits the copy to the beginning of another, maybe larger claim; "" for none.
	Slice string
	// Plugged means that the target does not start with the disk.
	Plugged bool
}

// Mirrors returns the disks that move with the guest, in the order of spec.volumes.
func Mirrors(vmi *v1.VirtualMachineInstance) []Mirror {
	spec, disks := &vmi.Spec, map[string]*v1.Disk{}
	for i := range spec.Domain.Devices.Disks {
		disks[spec.Domain.Devices.Disks[i].Name] = &spec.Domain.Devices.Disks[i]
	}
	var list []Mirror
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		m := Mirror{Volume: v.Name, Node: NodeName(v.Name), Copy: nodeName(copyPrefix, v.Name), Whole: !sameEverywhere(v)}
		switch d := disks[v.Name]; {
		case d == nil:
		case ChangesClaim(vmi, v):
			m.Slice, m.Plugged = nodeName(slicePrefix, v.Name), Hotpluggable(v)
			list = append(list, m)
		case moves(v, d):
			list = append(list, m)
		}
	}
	return list
}

// ChangesClaim reports whether a migration copies the disk to another claim.
func ChangesClaim(vmi *v1.VirtualMachineInstance, v *v1.Volume) bool {
	if v.PersistentVolumeClaim == nil && v.DataVolume == nil {
		return false
	}
	return slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m v1.StorageMigratedVolumeInfo) bool { return m.VolumeName == v.Name })
}

func moves(v *v1.Volume, d *v1.Disk) bool {
	switch {
	case isoVolume(v):
		// The target makes its own image, without the guest's writes.
		return isSATADisk(d)
	case v.ContainerDisk != nil, v.EmptyDisk != nil, v.Ephemeral != nil:
		return !Hotpluggable(v) && !isReadOnly(d)
	}
	return false
}

// An image's tag may mean another one on another node; its digest can't (decision 301).
func sameEverywhere(v *v1.Volume) bool {
	if v.ContainerDisk != nil {
		return strings.Contains(v.ContainerDisk.Image, "@sha256:")
	}
	return v.Ephemeral != nil
}

const (
	copyPrefix   = "m-"
	slicePrefix  = "ms-"
	mirrorPrefix = "mirror-"
)

// Job returns the name of the copy's job in a migration.
func (m *Mirror) Job(migration types.UID) string {
	return mirrorPrefix + string(migration) + "-" + m.Volume
}

// Export returns the name of the target's export.
func (m *Mirror) Export() string { return mirrorPrefix + m.Volume }

// IsMirrorJob reports whether a job of QEMU copies a disk, in any migration.
func IsMirrorJob(name string) bool { return strings.HasPrefix(name, mirrorPrefix) }

// IsMirrorCopy reports whether a block node is part of a copy.
func IsMirrorCopy(node string) bool {
	return strings.HasPrefix(node, copyPrefix) || IsMirrorSlice(node)
}

// IsMirrorSlice reports whether a block node is above another node of a copy and has to be deleted first.
func IsMirrorSlice(node string) bool { return strings.HasPrefix(node, slicePrefix) }

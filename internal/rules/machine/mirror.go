package machine

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Mirror is a disk that moves with its guest: what the guest writes to it is in its pod. QEMU at
// the target exports it by its volume's name, and QEMU at the source copies it there.
type Mirror struct {
	Volume string
	// Node is the block node that is copied, and that is exported; Copy is the one at the source
	// through which it reaches the target.
	Node, Copy string
	// Whole means that everything that the guest reads is copied. Otherwise only what it has
	// written is, since what is below is the same on every node.
	Whole bool
	// Slice is the node at the source by which only the beginning of the target is copied to, where the
	// target may be larger than the disk: of a disk that is copied to another claim. "" otherwise.
	Slice string
	// Plugged means that the disk is plugged into the target, whose QEMU does not start with it.
	Plugged bool
}

// Mirrors lists the disks that move with the guest, in the order of spec.volumes: those in its pod, and
// those that are copied to other claims.
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

// ChangesClaim reports whether a volume's disk is copied to another claim when the guest migrates.
func ChangesClaim(vmi *v1.VirtualMachineInstance, v *v1.Volume) bool {
	if v.PersistentVolumeClaim == nil && v.DataVolume == nil {
		return false
	}
	return slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m v1.StorageMigratedVolumeInfo) bool { return m.VolumeName == v.Name })
}

// moves reports whether what the guest writes to a volume is in its pod, and moves with it.
func moves(v *v1.Volume, d *v1.Disk) bool {
	switch {
	case isoVolume(v):
		// The target makes its own, but not of what the guest has written since.
		return isSATADisk(d)
	case v.ContainerDisk != nil, v.EmptyDisk != nil, v.Ephemeral != nil:
		return !Hotpluggable(v) && !isReadOnly(d)
	}
	return false
}

// sameEverywhere reports whether what is below the guest's writes is the same on every node. The
// tag of an image may name another one there; its digest can't (decision 301).
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

// Job is the name of the copying, of one migration.
func (m *Mirror) Job(migration types.UID) string {
	return mirrorPrefix + string(migration) + "-" + m.Volume
}

// Export is the name of what the target offers to copy to.
func (m *Mirror) Export() string { return mirrorPrefix + m.Volume }

// IsMirrorJob reports whether a job of QEMU's copies a disk, in any migration.
func IsMirrorJob(name string) bool { return strings.HasPrefix(name, mirrorPrefix) }

// IsMirrorCopy reports whether a block node is the way of a copy to its target.
func IsMirrorCopy(node string) bool {
	return strings.HasPrefix(node, copyPrefix) || IsMirrorSlice(node)
}

// IsMirrorSlice reports whether a block node is on top of such a one, and has to go before it.
func IsMirrorSlice(node string) bool { return strings.HasPrefix(node, slicePrefix) }

package machine

import (
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
}

// Mirrors lists the disks that move with the guest, in the order of spec.volumes.
func Mirrors(spec *v1.VirtualMachineInstanceSpec) []Mirror {
	disks := map[string]*v1.Disk{}
	for i := range spec.Domain.Devices.Disks {
		disks[spec.Domain.Devices.Disks[i].Name] = &spec.Domain.Devices.Disks[i]
	}
	var list []Mirror
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if d := disks[v.Name]; d != nil && moves(v, d) {
			list = append(list, Mirror{Volume: v.Name, Node: NodeName(v.Name), Copy: nodeName(copyPrefix, v.Name), Whole: !sameEverywhere(v)})
		}
	}
	return list
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
func IsMirrorCopy(node string) bool { return strings.HasPrefix(node, copyPrefix) }

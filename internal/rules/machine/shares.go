package machine

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const (
	// MaxShares is the number of functions of slotShares.
	MaxShares = 8
	// MaxShareName is the length of the tag by which a guest mounts a share.
	MaxShareName = 36
	shareQueue   = 1024
)

// IsShare reports whether a volume is a folder that the guest shares with its pod (spec.domain.devices.filesystems), and so
// no disk.
func IsShare(spec *v1.VirtualMachineInstanceSpec, volume string) bool {
	return slices.ContainsFunc(spec.Domain.Devices.Filesystems, func(f v1.Filesystem) bool { return f.Name == volume })
}

// HasShares reports whether the guest shares folders. Programs beside QEMU read and write its memory then.
func HasShares(spec *v1.VirtualMachineInstanceSpec) bool {
	return len(spec.Domain.Devices.Filesystems) > 0
}

// OnlyRead reports whether the volume is a share of a claim with these access modes that many nodes can mount at the same
// time because nobody writes to it.
func OnlyRead(spec *v1.VirtualMachineInstanceSpec, v *v1.Volume, modes []corev1.PersistentVolumeAccessMode) bool {
	claim, _ := volumeclaim.Of(&v.VolumeSource)
	writable := slices.Contains(modes, corev1.ReadWriteOnce) || slices.Contains(modes, corev1.ReadWriteOncePod)
	return IsShare(spec, v.Name) && slices.Contains(modes, corev1.ReadOnlyMany) && (claim.ReadOnly || !writable)
}

// DiskVolumes returns the volumes that are no shares.
func DiskVolumes(spec *v1.VirtualMachineInstanceSpec) []v1.Volume {
	return slices.DeleteFunc(slices.Clone(spec.Volumes), func(v v1.Volume) bool { return IsShare(spec, v.Name) })
}

// Shares returns the folders for which virt-launcher starts a program before QEMU.
func Shares(vmi *v1.VirtualMachineInstance) []launch.Share {
	var list []launch.Share
	for _, f := range vmi.Spec.Domain.Devices.Filesystems {
		list = append(list, launch.Share{Name: f.Name, Folder: layout.VolumeDir(f.Name)})
	}
	return list
}

// shares adds devices that can't be unplugged: QEMU has no way to take a mounted file system from a guest.
func (b *builder) shares() {
	for i, f := range b.spec.Devices.Filesystems {
		path := fmt.Sprintf("devices.filesystems[%d]", i)
		b.named(path, f.Name)
		switch {
		case i >= MaxShares:
			b.refuse(path, "a machine has at most %d", MaxShares)
			return
		case len(f.Name) > MaxShareName:
			b.refuse(path+".name", "%q is longer than %d characters", f.Name, MaxShareName)
			continue
		}
		id := "share-" + f.Name
		b.option("chardev", "socket,id=char-"+id+",path="+layout.Socket(layout.ShareSocket(f.Name)))
		device := onRootBus(Properties{
			"driver": "vhost-user-fs-pci", "id": id, "chardev": "char-" + id, "tag": f.Name, "queue-size": shareQueue,
		}, slotShares)
		device["addr"], device["multifunction"] = fmt.Sprintf("%#x.%d", slotShares, i), i == 0
		b.device(device)
	}
}

package machine

import (
	"path"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// Images lists what virt-launcher must prepare before the machine can be
// built: the files behind the VMI's disks and the overlays on them, in the
// order of spec.volumes.
func Images(vmi *v1.VirtualMachineInstance) []launch.Image {
	readOnly := make(map[string]bool)
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		readOnly[d.Name] = isReadOnly(d)
	}
	var images []launch.Image
	for i := range vmi.Spec.Volumes {
		image, ok := volumeImage(&vmi.Spec.Volumes[i])
		if !ok || Hotpluggable(&vmi.Spec.Volumes[i]) {
			continue
		}
		// What nobody writes to needs nothing on top of it.
		if readOnly[image.Name] && image.Source != "" {
			image.Overlay = ""
		}
		images = append(images, image)
	}
	if image, ok := nvram(vmi); ok {
		images = append(images, image)
	}
	return append(images, kernelImages(vmi)...)
}

// kernelImages are the files of a kernel's image that QEMU reads by itself: they are
// prepared only to see that they are that image's. Their names are no volume's.
func kernelImages(vmi *v1.VirtualMachineInstance) []launch.Image {
	f := vmi.Spec.Domain.Firmware
	if f == nil || f.KernelBoot == nil || f.KernelBoot.Container == nil {
		return nil
	}
	var images []launch.Image
	for name, file := range map[string]string{
		"kernelBoot.kernel": f.KernelBoot.Container.KernelPath, "kernelBoot.initrd": f.KernelBoot.Container.InitrdPath,
	} {
		if file != "" {
			images = append(images, launch.Image{Name: name, Root: layout.KernelBootDir, Source: inKernelBoot(file), Format: formatRaw})
		}
	}
	slices.SortFunc(images, func(a, b launch.Image) int { return strings.Compare(b.Name, a.Name) })
	return images
}

// volumeImage is the image of one volume; false for a volume that needs no
// preparation by virt-launcher (virt-handler makes ISO images by itself, and
// virt-launcher the disk of downward metrics when QEMU starts).
func volumeImage(v *v1.Volume) (launch.Image, bool) {
	image := launch.Image{Name: v.Name}
	switch {
	case v.ContainerDisk != nil:
		image.Root = layout.VolumeDir(v.Name)
		image.Source = path.Join(image.Root, path.Join("/", containerDiskPath(v.ContainerDisk)))
		image.Overlay = layout.OverlayFile(v.Name)
	case v.EmptyDisk != nil:
		image.Overlay = layout.OverlayFile(v.Name)
		image.Size = v.EmptyDisk.Capacity.Value()
	case v.HostDisk != nil:
		image.Root = layout.VolumeDir(v.Name)
		image.Source = path.Join(image.Root, path.Base(v.HostDisk.Path))
		image.Format = formatRaw
	case v.PersistentVolumeClaim != nil, v.DataVolume != nil:
		claimImage(&image)
	case v.Ephemeral != nil:
		claimImage(&image)
		image.Overlay = layout.OverlayFile(v.Name)
	default:
		return launch.Image{}, false
	}
	return image, true
}

// claimImage is the disk in a claim: the block device, or disk.img in the file
// system; raw in both, so that what a guest writes stays what it was (decision 031).
func claimImage(image *launch.Image) {
	image.Root = layout.VolumeDir(image.Name)
	image.Source = path.Join(image.Root, layout.DiskImage)
	image.Device = layout.VolumeDevice(image.Name)
	image.Format = formatRaw
}

// containerDiskPath is where in a containerDisk's image the disk lies: the
// path the VMI names, else the one file in /disk.
func containerDiskPath(d *v1.ContainerDiskSource) string {
	if d.Path != "" {
		return d.Path
	}
	return layout.ContainerDiskDir
}

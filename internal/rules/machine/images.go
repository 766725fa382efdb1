package machine

import (
	"path"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// Images returns the files that virt-launcher has to prepare for the machine, in the order of spec.volumes.
func Images(vmi *v1.VirtualMachineInstance) []launch.Image {
	readOnly := make(map[string]bool)
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		readOnly[d.Name] = isReadOnly(d)
	}
	var images []launch.Image
	for i := range vmi.Spec.Volumes {
		image, ok := volumeImage(&vmi.Spec.Volumes[i])
		if !ok || Hotpluggable(&vmi.Spec.Volumes[i]) || IsShare(&vmi.Spec, image.Name) {
			continue
		}
		// A read-only image needs no overlay.
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

// kernelImages returns the files that QEMU reads directly: virt-launcher only checks them. No volume can have their
// names.
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

// volumeImage returns false for ISO images, which virt-handler makes, and for the disk of downward metrics, which
// virt-launcher makes when QEMU starts.
func volumeImage(v *v1.Volume) (launch.Image, bool) {
	image := launch.Image{Name: v.Name}
	switch {
	case v.ContainerDisk != nil:
		image.Root = layout.VolumeDir(v.Name)
		image.Source = path.Join(image.Root, path.Join("/", or(v.ContainerDisk.Path, layout.ContainerDiskDir)))
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

// claimImage sets the disk in a claim: the block device, or disk.img in the file system. Both are raw, so that a
// guest's content can't be taken for another format (decision 031).
func claimImage(image *launch.Image) {
	image.Root = layout.VolumeDir(image.Name)
	image.Source = path.Join(image.Root, layout.DiskImage)
	image.Device = layout.VolumeDevice(image.Name)
	image.Format = formatRaw
}

package machine

import (
	"path"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/launch"
	"drydock.dev/drydock/internal/layout"
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
	return images
}

// volumeImage is the image of one volume; false for a volume that needs no
// preparation by virt-launcher (virt-handler makes ISO images by itself).
func volumeImage(v *v1.Volume) (launch.Image, bool) {
	image := launch.Image{Name: v.Name}
	switch {
	case v.ContainerDisk != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), path.Join("/", containerDiskPath(v.ContainerDisk)))
		image.Overlay = layout.OverlayFile(v.Name)
	case v.EmptyDisk != nil:
		image.Overlay = layout.OverlayFile(v.Name)
		image.Size = v.EmptyDisk.Capacity.Value()
	case v.HostDisk != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), path.Base(v.HostDisk.Path))
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
// system; raw in both, so that what a guest writes stays what it was.
func claimImage(image *launch.Image) {
	image.Source = path.Join(layout.VolumeDir(image.Name), layout.DiskImage)
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

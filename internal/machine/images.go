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
	var images []launch.Image
	for i := range vmi.Spec.Volumes {
		if image, ok := volumeImage(&vmi.Spec.Volumes[i]); ok {
			images = append(images, image)
		}
	}
	return images
}

// volumeImage is the image of one volume; false for a volume that needs no
// preparation by virt-launcher (virt-handler makes ISO images by itself).
func volumeImage(v *v1.Volume) (launch.Image, bool) {
	image := launch.Image{Name: v.Name}
	switch {
	case v.ContainerDisk != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), containerDiskPath(v.ContainerDisk))
		image.Overlay = layout.OverlayFile(v.Name)
	case v.EmptyDisk != nil:
		image.Overlay = layout.OverlayFile(v.Name)
		image.Size = v.EmptyDisk.Capacity.Value()
	case v.HostDisk != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), path.Base(v.HostDisk.Path))
	case v.PersistentVolumeClaim != nil, v.DataVolume != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), layout.DiskImage)
	case v.Ephemeral != nil:
		image.Source = path.Join(layout.VolumeDir(v.Name), layout.DiskImage)
		image.Overlay = layout.OverlayFile(v.Name)
	default:
		return launch.Image{}, false
	}
	return image, true
}

// containerDiskPath is where in a containerDisk's image the disk lies: the
// path the VMI names, else the one file in /disk.
func containerDiskPath(d *v1.ContainerDiskSource) string {
	if d.Path != "" {
		return d.Path
	}
	return layout.ContainerDiskDir
}

package layout

import "path"

// An attachment pod: what its name begins with, its one container, and the folder in
// which that has each volume.
const (
	AttachmentPrefix    = "hp-volume-"
	AttachmentContainer = "hotplug-disk"

	attachedDir = "/path"
)

// AttachedVolume is where an attachment pod's container has a volume, as a folder or as
// a device.
func AttachedVolume(volume string) string { return path.Join(attachedDir, volume) }

package layout

import "path"

// An attachment pod: the prefix of its name, its one container, and the container's folder for volumes.
const (
	AttachmentPrefix    = "hp-volume-"
	AttachmentContainer = "hotplug-disk"

	attachedDir = "/path"
)

// AttachedVolume returns the path of a volume in an attachment pod's container, a folder or a device.
func AttachedVolume(volume string) string { return path.Join(attachedDir, volume) }

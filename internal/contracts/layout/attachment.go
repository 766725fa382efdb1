package layout

import "path"

// An attachment pod has one container.
const (
	AttachmentPrefix    = "hp-volume-"
	AttachmentContainer = "hotplug-disk"

	attachedDir = "/path"
)

// AttachedVolume returns the path of a volume in an attachment pod, a folder or a device.
func AttachedVolume(volume string) string { return path.Join(attachedDir, volume) }

package layout

import "path"

// Parts of the pod that virt-api creates for maintenance.
const (
	MaintenanceContainer = "libguestfs"
	// MaintenanceVerb is the subresource of a VM that creates such pods. MaintenanceForceVerb, which nothing serves, is
	// only for the right to take a lock away.
	MaintenanceVerb      = "maintenance"
	MaintenanceForceVerb = "maintenance-force"
	// BackendStorageDir is the mount path of the claim of the VM's state, if requested.
	BackendStorageDir = "/backend-storage"
	disksDir          = "/disks"
)

// DevelGuestfsImage is made by `make images`.
const DevelGuestfsImage = "drydock.dev/libguestfs-tools:devel"

// MaintenanceDisk returns the path of a VM's volume in a maintenance pod: a folder with disk.img, or a block device.
func MaintenanceDisk(volume string) string { return path.Join(disksDir, volume) }

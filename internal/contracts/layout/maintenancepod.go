package layout

import "path"

// What the pod has that virt-api makes for the maintenance of a VM's disks.
const (
	// MaintenanceContainer is its one container.
	MaintenanceContainer = "libguestfs"
	// MaintenanceVerb is the subresource of a VM that makes such pods; MaintenanceForceVerb is the one that the right
	// to take a lock away goes by, which nothing serves.
	MaintenanceVerb      = "maintenance"
	MaintenanceForceVerb = "maintenance-force"
	// BackendStorageDir is where the claim of the VM's state is mounted, if it is asked for.
	BackendStorageDir = "/backend-storage"
	disksDir          = "/disks"
)

// DevelGuestfsImage is the image of maintenance pods as `make images` makes it.
const DevelGuestfsImage = "drydock.dev/libguestfs-tools:devel"

// MaintenanceDisk is where a maintenance pod has a volume of its VM: a folder with disk.img in it, or a block device.
func MaintenanceDisk(volume string) string { return path.Join(disksDir, volume) }

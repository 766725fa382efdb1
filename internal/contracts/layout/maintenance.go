package layout

// Names for a maintenance pod and the lock of its VM (SPEC: Maintenance).
const (
	// MaintenanceForLabel of a pod names the VM, or the VMI without a VM, whose disks the pod gets.
	MaintenanceForLabel = "kubevirt.io/maintenance-for"
	// MaintenanceLabel of a VM, or of a VMI without a VM, names the pod for which its disks are locked. Only
	// virt-controller writes it.
	MaintenanceLabel = "kubevirt.io/maintenance"
	// MaintenanceGate is the scheduling gate of a pod that waits for the lock.
	MaintenanceGate = "kubevirt.io/maintenance"
	// MaintenanceFinalizer keeps a pod until it can no longer write, and a VM until it is unlocked.
	MaintenanceFinalizer = "kubevirt.io/maintenance"
	// MaintenanceLockCondition is a pod's condition for whether it has the lock, and why not.
	MaintenanceLockCondition = "kubevirt.io/maintenance-lock"
	// MaintenanceApp is the value of the label kubevirt.io of maintenance pods, by which virt-controller selects them.
	MaintenanceApp = "maintenance"

	// MaintenanceUIDAnnotation of a VM is the UID of the pod in MaintenanceLabel: another pod of that name does not have
	// the lock. MaintenanceSinceAnnotation is the time of locking.
	MaintenanceUIDAnnotation   = "kubevirt.io/maintenance-uid"
	MaintenanceSinceAnnotation = "kubevirt.io/maintenance-since"
	// MaintenanceOpenAnnotation of a VM means that nothing was in the way after locking, and the pod may run.
	MaintenanceOpenAnnotation = "kubevirt.io/maintenance-open"
	// MaintenanceReleaseAnnotation of a VM requests a forced unlock, by the UID of the pod that, as the user vouches, no
	// longer writes. MaintenanceReleaseByAnnotation is that user. Only virt-api writes them.
	MaintenanceReleaseAnnotation   = "kubevirt.io/maintenance-release"
	MaintenanceReleaseByAnnotation = "kubevirt.io/maintenance-release-by"
)

// ClaimLabelPrefix starts the labels, without values, that select the launcher pods and maintenance pods that write to a
// claim.
const ClaimLabelPrefix = "claim.drydock.dev/"

// ClaimLabel returns the label for a claim.
func ClaimLabel(claim string) string { return ClaimLabelPrefix + LabelValue(claim) }

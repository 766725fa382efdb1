package layout

// What makes a pod a maintenance pod, and what locks a VM for one (SPEC: Maintenance).
const (
	// MaintenanceForLabel of a pod names the VM, or the VMI without a VM, whose disks the pod is to have.
	MaintenanceForLabel = "kubevirt.io/maintenance-for"
	// MaintenanceLabel of a VM, or of a VMI without a VM, names the pod that its disks are locked for. Only
	// virt-controller writes it.
	MaintenanceLabel = "kubevirt.io/maintenance"
	// MaintenanceGate is the scheduling gate of a pod that waits for the lock.
	MaintenanceGate = "kubevirt.io/maintenance"
	// MaintenanceFinalizer keeps a maintenance pod until it can no longer write, and a VM until it is unlocked.
	MaintenanceFinalizer = "kubevirt.io/maintenance"
	// MaintenanceLockCondition is that of a pod which says whether it has the lock, and why not.
	MaintenanceLockCondition = "kubevirt.io/maintenance-lock"
	// MaintenanceApp is the value of the label kubevirt.io of maintenance pods, by which virt-controller finds them.
	MaintenanceApp = "maintenance"

	// MaintenanceUIDAnnotation of a VM has the UID of the pod that MaintenanceLabel names: another pod of that name
	// is not the holder. MaintenanceSinceAnnotation has the time from which on it is locked.
	MaintenanceUIDAnnotation   = "kubevirt.io/maintenance-uid"
	MaintenanceSinceAnnotation = "kubevirt.io/maintenance-since"
	// MaintenanceOpenAnnotation of a VM means that nothing stood in the way after it was locked, and the pod may run.
	MaintenanceOpenAnnotation = "kubevirt.io/maintenance-open"
	// MaintenanceReleaseAnnotation of a VM asks for a forced unlock: it has the UID of the pod that is vouched to write
	// no more. MaintenanceReleaseByAnnotation says who has asked. Only virt-api writes them.
	MaintenanceReleaseAnnotation   = "kubevirt.io/maintenance-release"
	MaintenanceReleaseByAnnotation = "kubevirt.io/maintenance-release-by"
)

// ClaimLabelPrefix begins the labels, without values, by which the launcher pods and the maintenance pods that write to
// a claim are found without reading every pod of a namespace.
const ClaimLabelPrefix = "claim.drydock.dev/"

// ClaimLabel is the one for a claim.
func ClaimLabel(claim string) string { return ClaimLabelPrefix + LabelValue(claim) }

package vmistatus

import (
	v1 "kubevirt.io/api/core/v1"
)

// Volumes are volumes whose disks are copied to other claims when the guest migrates.
type Volumes struct {
	Migrated []v1.StorageMigratedVolumeInfo
	// Canceled means that the copies are given up. The status keeps the volumes until the migration has ended, and
	// Migrated is ignored.
	Canceled bool
	// Idle is the condition's reason if nothing is copied although another claim is or was wanted. Migrated is empty.
	Idle    string
	Message string
}

// ReasonDestinationMissing is VolumesChange's reason while the claim for a disk's copy does not exist.
const ReasonDestinationMissing = "DestinationMissing"

func (p *projection) moveVolumes(status *v1.VirtualMachineInstanceStatus) {
	change, known := p.Volumes.Get()
	switch {
	case p.stage != HandedOver:
	case p.Migration.Arrived != nil:
		status.MigratedVolumes = nil
	case known && !change.Canceled:
		status.MigratedVolumes = change.Migrated
	}
}

// volumesChange is True while disks must be copied, and False while they can't be and after a cancellation.
func (p *projection) volumesChange() verdict {
	change, known := p.Volumes.Get()
	switch {
	case p.stage != HandedOver:
		return unknown
	case p.Migration.Arrived != nil:
		return absent
	case !known:
		return unknown
	case change.Canceled:
		return isFalse(v1.VirtualMachineInstanceReasonVolumesChangeCancellation, change.Message)
	case change.Idle != "":
		return isFalse(change.Idle, change.Message)
	case len(change.Migrated) == 0:
		return absent
	}
	return isTrue("", change.Message)
}

package vmistatus

import (
	v1 "kubevirt.io/api/core/v1"
)

// Volumes are the volumes of a VMI whose disks are to be copied to other claims when its guest migrates.
type Volumes struct {
	// Migrated are the volumes with both claims; none when none is to be copied any more.
	Migrated []v1.StorageMigratedVolumeInfo
	// Canceled means that what the status lists is not to be copied any more, and stays listed until the
	// migration has ended that copies it. Migrated does not count then.
	Canceled bool
	// Message says which volumes these are.
	Message string
}

// moveVolumes lists the volumes that are copied. None are when the guest has arrived.
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

// volumesChange is True while disks are to be copied, and False when that was taken back.
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
	case len(change.Migrated) == 0:
		return absent
	}
	return isTrue("", change.Message)
}

package volumemigration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

// Destination is a claim to which a disk is copied.
type Destination struct {
	Move  Move
	Claim placement.Claim
	Size  int64  // in bytes, 0 if unknown
	User  string // another writer to the claim, as text: another VMI's guest or a maintenance pod
	// Plugged means that an attachment pod binds the claim, after the target pod runs.
	Plugged bool
}

// SizeOf returns a disk's size in bytes by its VMI's status, 0 if unknown.
func SizeOf(vmi *v1.VirtualMachineInstance, volume string) int64 {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == volume {
			return s.Size
		}
	}
	return 0
}

// Canceled reports whether the VMI's migratedVolumes are canceled, false without any.
func Canceled(vmi *v1.VirtualMachineInstance) bool {
	if len(vmi.Status.MigratedVolumes) == 0 {
		return false
	}
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceVolumesChange)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == v1.VirtualMachineInstanceReasonVolumesChangeCancellation
}

// Unfit returns why disks can't be copied to their claims yet, "" if they can. placed means that a target pod binds
// claims that wait for their first consumer.
func Unfit(list []Destination, placed bool) string {
	for i := range list {
		if why := list[i].unfit(placed); why != "" {
			return fmt.Sprintf("volume %s can't be copied yet: %s", list[i].Move.Volume, why)
		}
	}
	return ""
}

func (d *Destination) unfit(placed bool) string {
	claim, dv := d.Claim.Claim, d.Claim.DataVolume
	switch {
	case d.Claim.Source != "" && dv == nil:
		return fmt.Sprintf("the DataVolume %s does not exist", d.Claim.Source)
	case claim == nil:
		return fmt.Sprintf("the PVC %s does not exist", d.Move.To)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("the PVC %s is being deleted", d.Move.To)
	case datavolume.AwaitsUpload(claim):
		return datavolume.Unfilled(claim, nil)
	case d.User != "":
		return fmt.Sprintf("the PVC %s is used by %s", d.Move.To, d.User)
	case capacity(claim) < d.Size:
		return fmt.Sprintf("the PVC %s has %d bytes, and the disk has %d: name a larger one", d.Move.To, capacity(claim), d.Size)
	case dv != nil && dv.Status.Phase != cdiv1.Succeeded && (placed && !d.Plugged || !placement.Ready(dv)):
		return fmt.Sprintf("the DataVolume %s is not filled: its phase is %s", dv.Name, dv.Status.Phase)
	}
	return ""
}

// capacity returns the claim's capacity, or its request before it is bound.
func capacity(claim *corev1.PersistentVolumeClaim) int64 {
	size, given := claim.Status.Capacity[corev1.ResourceStorage]
	if !given {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.Value()
}

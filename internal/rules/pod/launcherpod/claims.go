package launcherpod

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// ClaimLabel returns the key of the label of launcher pods that write to a claim.
func ClaimLabel(claim string) string { return layout.ClaimLabel(claim) }

// NameLabel selects, with NameLabelValue, all launcher pods of VMIs of a name: unlike InstanceID, its value is the same
// in every version. IsNamedFor filters them.
const NameLabel = v1.DeprecatedVirtualMachineNameLabel

// NameLabelValue returns the value of NameLabel.
func NameLabelValue(vmi string) string { return layout.LabelValue(vmi) }

// InstanceID returns the value of the label vmi.kubevirt.io/id, by which others find a VMI's launcher pods. As in
// KubeVirt, a long name ends in eight digits of its SHA-1.
func InstanceID(vmi string) string {
	const digits = 8
	if len(vmi) <= validation.LabelValueMaxLength {
		return vmi
	}
	sum := sha1.Sum([]byte(vmi))
	return vmi[:validation.LabelValueMaxLength-1-digits] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// WrittenClaims returns the claims to which a guest writes from its start, in the order of its disks, and that of its
// VM's state.
func WrittenClaims(vmi *v1.VirtualMachineInstance) []string {
	return withState(diskClaims(&vmi.Spec, func(*v1.Disk) bool { return true }), vmi)
}

// ExclusiveClaims returns those of WrittenClaims to which no other guest may write: their disk is not shareable.
func ExclusiveClaims(vmi *v1.VirtualMachineInstance) []string {
	return withState(diskClaims(&vmi.Spec, func(d *v1.Disk) bool { return d.Shareable == nil || !*d.Shareable }), vmi)
}

func diskClaims(spec *v1.VirtualMachineInstanceSpec, counts func(*v1.Disk) bool) []string {
	var claims []string
	for i := range spec.Domain.Devices.Disks {
		disk := &spec.Domain.Devices.Disks[i]
		if ReadOnly(disk) || !counts(disk) {
			continue
		}
		for j := range spec.Volumes {
			v := &spec.Volumes[j]
			if v.Name != disk.Name || machine.Hotpluggable(v) {
				continue
			}
			if claim := volumeclaim.Written(&v.VolumeSource); claim != "" && !slices.Contains(claims, claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// ReadOnly reports whether the guest can't write to the disk.
func ReadOnly(d *v1.Disk) bool {
	switch {
	case d.CDRom != nil:
		return true
	case d.Disk != nil:
		return d.Disk.ReadOnly
	case d.LUN != nil:
		return d.LUN.ReadOnly
	}
	return false
}

package launcherpod

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// ClaimLabel is the label, without a value, of launcher pods that write to a
// claim.
func ClaimLabel(claim string) string { return layout.ClaimLabel(claim) }

// labelClaims names on the pod the claims that it writes to.
func labelClaims(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) {
	for _, claim := range WrittenClaims(vmi) {
		pod.Labels[ClaimLabel(claim)] = ""
	}
}

// NameLabel selects, with NameLabelValue, the launcher pods of VMIs of a name. Pods of every version have
// it with the same value, which the other label with a name (InstanceID) does not: the API server is asked
// by this one for those that may hold a second guest. Which of them count is IsNamedFor's to say.
const NameLabel = v1.DeprecatedVirtualMachineNameLabel

// NameLabelValue is the value of NameLabel for the VMIs of a name.
func NameLabelValue(vmi string) string { return layout.LabelValue(vmi) }

// InstanceID is the value of the label vmi.kubevirt.io/id, which others look the launcher pods of a VMI up
// by. As KubeVirt makes it, a name that is too long for a label is cut, and ends in eight digits of its SHA-1.
func InstanceID(vmi string) string {
	const digits = 8
	if len(vmi) <= validation.LabelValueMaxLength {
		return vmi
	}
	sum := sha1.Sum([]byte(vmi))
	return vmi[:validation.LabelValueMaxLength-1-digits] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// WrittenClaims lists the claims that a guest writes to from its start, in the
// order of its disks, and that of its VM's state.
func WrittenClaims(vmi *v1.VirtualMachineInstance) []string {
	return withState(diskClaims(&vmi.Spec, func(*v1.Disk) bool { return true }), vmi)
}

// ExclusiveClaims lists those of WrittenClaims that no other guest may write to
// meanwhile: all whose disk is not shareable.
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
			claim := writtenClaim(&spec.Volumes[j])
			if claim != "" && spec.Volumes[j].Name == disk.Name && !slices.Contains(claims, claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// ReadOnly reports whether the guest may only read a disk.
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

// writtenClaim is the claim that a volume lets the guest write to from its
// start, "" for none.
func writtenClaim(v *v1.Volume) string {
	if machine.Hotpluggable(v) {
		return ""
	}
	return volumeclaim.Written(&v.VolumeSource)
}

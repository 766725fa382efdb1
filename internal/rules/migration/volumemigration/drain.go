package volumemigration

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// A drain moves disks that only the node reaches to new claims as a user would: the VM's template names them (decision
// 342).

const (
	// DrainAnnotation on a VM lets a drain move its disks to other claims, if the value is DrainMigrate.
	DrainAnnotation = "drydock.dev/drain-local-disks"
	// DrainMigrate permits it.
	DrainMigrate = "Migrate"

	// DrainLabel on a DataVolume that was made for a drain is the VM's UID.
	DrainLabel = "drydock.dev/drain-destination"
	// DrainedVM is an annotation with the VM's name.
	DrainedVM = "drydock.dev/drained-vm"
)

// DrainAllowed reports whether the VM's owner lets a drain move its disks, which changes the claims in its template.
func DrainAllowed(vm *v1.VirtualMachine) bool {
	return ByMigration(&vm.Spec) && vm.Annotations[DrainAnnotation] == DrainMigrate
}

// MovesOffNode returns the move off the node for each volume that could be migrated, needed or not. The new claim's
// name follows from the guest's pod, so that it was never a guest's disk before.
func MovesOffNode(vmi *v1.VirtualMachineInstance) []Move {
	var moves []Move
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if from := volumeclaim.Disk(&v.VolumeSource); from != "" && volumeclaim.Written(&v.VolumeSource) != "" {
			moves = append(moves, moveOffNode(vmi, v.Name, from))
		}
	}
	return moves
}

func moveOffNode(vmi *v1.VirtualMachineInstance, volume, from string) Move {
	of := fmt.Sprintf("%s %s %s %s", vmi.UID, launcherpod.CurrentName(vmi), volume, from)
	return Move{Volume: volume, From: from, To: layout.PodName("", vmi.Name+"-"+volume, "-"+layout.LongDigest(of))}
}

// Local returns the moves of all disks that only the guest's node reaches, and the reasons against them.
func Local(vmi *v1.VirtualMachineInstance) (moves []Move, refusals []string) {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		local, why := judgeLocal(vmi, v)
		switch {
		case why != "":
			refusals = append(refusals, fmt.Sprintf("volume %s can't be migrated: %s", v.Name, why))
		case local:
			moves = append(moves, moveOffNode(vmi, v.Name, volumeclaim.Disk(&v.VolumeSource)))
		}
	}
	return moves, refusals
}

// judgeLocal reports whether the volume keeps the guest on its node, or why it can't be moved.
func judgeLocal(vmi *v1.VirtualMachineInstance, v *v1.Volume) (local bool, why string) {
	claim, onClaim := volumeclaim.Of(&v.VolumeSource)
	info := claimInfo(vmi, v.Name)
	switch {
	case v.HostDisk != nil:
		return false, fileOfNode(v.HostDisk)
	case !onClaim:
		return false, ""
	case info == nil && machine.Hotpluggable(v):
		return false, "" // it is being plugged or unplugged
	case info == nil || info.ClaimName != claim.Name, machine.Hotpluggable(v) && len(info.AccessModes) == 0:
		return false, fmt.Sprintf("what its claim %s is has not been reported yet", claim.Name)
	case shared(claim, info), machine.OnlyRead(&vmi.Spec, v, info.AccessModes):
		return false, ""
	case claim.Backing || claim.ReadOnly:
		return false, "its claim is only read"
	}
	why = unfitDisk(&vmi.Spec, v.Name)
	if why == "" && machine.Hotpluggable(v) {
		why = unready(vmi, Move{Volume: v.Name, From: claim.Name})
	}
	return why == "", why
}

// WhyStillLocal returns why the moves are in vain: another volume's claim keeps the guest on its node. It returns "" if
// none is known. KubeVirt's clients match the sentence.
func WhyStillLocal(vmi *v1.VirtualMachineInstance, moves []Move) string {
	if len(moves) == 0 {
		return ""
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		claim, onClaim := volumeclaim.Of(&v.VolumeSource)
		info := claimInfo(vmi, v.Name)
		switch {
		case !onClaim || slices.ContainsFunc(moves, func(m Move) bool { return m.Volume == v.Name }):
		case info == nil || info.ClaimName != claim.Name || len(info.AccessModes) == 0: // It is not known.
		case !shared(claim, info) && !machine.OnlyRead(&vmi.Spec, v, info.AccessModes):
			return fmt.Sprintf("cannot migrate the VM. The volume %s is RWO and not included in the migration volumes", v.Name)
		}
	}
	return ""
}

func shared(claim volumeclaim.Claim, info *v1.PersistentVolumeClaimInfo) bool {
	return slices.Contains(info.AccessModes, corev1.ReadWriteMany) || claim.Backing && slices.Contains(info.AccessModes, corev1.ReadOnlyMany)
}

func fileOfNode(disk *v1.HostDisk) string {
	if disk.Shared != nil && *disk.Shared {
		return ""
	}
	return "it is a file on this node"
}

func claimInfo(vmi *v1.VirtualMachineInstance, volume string) *v1.PersistentVolumeClaimInfo {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == volume {
			return s.PersistentVolumeClaimInfo
		}
	}
	return nil
}

// Names reports whether the template has the move's volume on its new claim.
func (m Move) Names(template *v1.VirtualMachineInstanceSpec) bool {
	return claimOf(template, m.Volume) == m.To
}

// OnEitherClaim reports whether the template has each volume on one of its move's two claims: no user has chosen another.
func OnEitherClaim(template *v1.VirtualMachineInstanceSpec, moves []Move) bool {
	return !slices.ContainsFunc(moves, func(m Move) bool {
		return !m.Names(template) && claimOf(template, m.Volume) != m.From
	})
}

// WriteNewClaims writes the new claims into the VM's template and its dataVolumeTemplates, each of which must be a
// volume's.
func WriteNewClaims(vm *v1.VirtualMachine, moves []Move) {
	for _, m := range moves {
		if v := volumeclaim.Named(vm.Spec.Template.Spec.Volumes, m.Volume); v != nil && claimOf(&vm.Spec.Template.Spec, m.Volume) == m.From {
			v.VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: m.To, Hotpluggable: machine.Hotpluggable(v)}}
			renameTemplate(vm, m.From, m.To)
		}
	}
}

// RestoreClaims replaces the moves' new claims in the VM's template by the VMI's current ones.
func RestoreClaims(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, moves []Move) {
	for _, m := range moves {
		v, is := volumeclaim.Named(vm.Spec.Template.Spec.Volumes, m.Volume), volumeclaim.Named(vmi.Spec.Volumes, m.Volume)
		if v != nil && is != nil && m.Names(&vm.Spec.Template.Spec) {
			v.VolumeSource = *is.VolumeSource.DeepCopy()
			renameTemplate(vm, m.To, m.From)
		}
	}
}

func renameTemplate(vm *v1.VirtualMachine, from, to string) {
	for i := range vm.Spec.DataVolumeTemplates {
		if t := &vm.Spec.DataVolumeTemplates[i]; t.Name == from {
			t.Name = to
		}
	}
}

// NewDestination returns the DataVolume of a new claim like the old one, of the same size. owned makes the VM its owner.
func NewDestination(vm *v1.VirtualMachine, move Move, old *corev1.PersistentVolumeClaim, owned bool) *cdiv1.DataVolume {
	size := old.Spec.Resources.Requests.Storage()
	if given := old.Status.Capacity.Storage(); given.Cmp(*size) > 0 {
		size = given
	}
	dv := &cdiv1.DataVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: move.To,
			Labels:      map[string]string{DrainLabel: string(vm.UID)},
			Annotations: map[string]string{DrainedVM: vm.Name},
		},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: slices.Clone(old.Spec.AccessModes), VolumeMode: old.Spec.VolumeMode, StorageClassName: old.Spec.StorageClassName,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size.DeepCopy()}},
			},
			PriorityClassName: vm.Spec.Template.Spec.PriorityClassName,
		},
	}
	if owned {
		datavolume.GiveTo(vm, dv)
	}
	return dv
}

// MadeForDrain reports whether the DataVolume was made for a drain of the VM and is not being deleted.
func MadeForDrain(dv *cdiv1.DataVolume, vm *v1.VirtualMachine) bool {
	return dv.DeletionTimestamp == nil && dv.Labels[DrainLabel] == string(vm.UID)
}

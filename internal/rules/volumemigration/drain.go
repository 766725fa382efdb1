package volumemigration

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/datavolume"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// When a node is drained, the disks that only this node reaches are brought to claims that are made for it, by
// the same way as those that a user names: the VM's template names them (decision 342).

const (
	// DrainAnnotation on a VM lets a drain bring its disks to other claims, if it has the value DrainMigrate.
	DrainAnnotation = "drydock.dev/drain-local-disks"
	// DrainMigrate has them migrated.
	DrainMigrate = "Migrate"

	// DrainLabel is the UID of a VM, on a DataVolume that was made for a drain.
	DrainLabel = "drydock.dev/drain-destination"
	// DrainedVM is the annotation with the VM's name.
	DrainedVM = "drydock.dev/drained-vm"
)

// DrainAllowed reports whether the owner of a VM lets a drain bring its disks to other claims, of which its
// template will then speak.
func DrainAllowed(vm *v1.VirtualMachine) bool {
	return ByMigration(&vm.Spec) && vm.Annotations[DrainAnnotation] == DrainMigrate
}

// Exits returns, for each volume of a VMI that could be migrated, the move by which its disk leaves the node that
// the guest is on, whether or not it has to. Where it goes to is named by the pod that the guest is in: what has
// that name was never the disk of a guest, and is another one when the guest has come to another pod.
func Exits(vmi *v1.VirtualMachineInstance) []Move {
	var moves []Move
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if from := volumeclaim.Disk(&v.VolumeSource); from != "" && volumeclaim.Written(&v.VolumeSource) != "" {
			moves = append(moves, exit(vmi, v.Name, from))
		}
	}
	return moves
}

func exit(vmi *v1.VirtualMachineInstance, volume, from string) Move {
	of := fmt.Sprintf("%s %s %s %s", vmi.UID, launcherpod.CurrentName(vmi), volume, from)
	return Move{Volume: volume, From: from, To: layout.PodName("", vmi.Name+"-"+volume, "-"+layout.LongDigest(of))}
}

// Local returns the moves by which a guest leaves its node together with all of its disks that only this node
// reaches, and why disks of these can't be moved.
func Local(vmi *v1.VirtualMachineInstance) (moves []Move, refusals []string) {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		local, why := judgeLocal(vmi, v)
		switch {
		case why != "":
			refusals = append(refusals, fmt.Sprintf("volume %s can't be migrated: %s", v.Name, why))
		case local:
			moves = append(moves, exit(vmi, v.Name, volumeclaim.Disk(&v.VolumeSource)))
		}
	}
	return moves, refusals
}

// judgeLocal reports whether a volume has to be migrated for its guest to leave the node, and why it can't be.
func judgeLocal(vmi *v1.VirtualMachineInstance, v *v1.Volume) (local bool, why string) {
	claim, onClaim := volumeclaim.Of(&v.VolumeSource)
	info := claimInfo(vmi, v.Name)
	switch {
	case v.HostDisk != nil:
		return false, fileOfNode(v.HostDisk)
	case !onClaim:
		return false, ""
	case info == nil && machine.Hotpluggable(v):
		return false, "" // it is on its way into the guest, or out of it
	case info == nil || info.ClaimName != claim.Name, machine.Hotpluggable(v) && len(info.AccessModes) == 0:
		return false, fmt.Sprintf("what its claim %s is has not been reported yet", claim.Name)
	case slices.Contains(info.AccessModes, corev1.ReadWriteMany), claim.Backing && slices.Contains(info.AccessModes, corev1.ReadOnlyMany):
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

// fileOfNode is why a file of a node keeps its guest there, "" if it does not.
func fileOfNode(disk *v1.HostDisk) string {
	if disk.Shared != nil && *disk.Shared {
		return ""
	}
	return "it is a file on this node"
}

// claimInfo is what the status of a VMI says of the claim of a volume, nil for nothing.
func claimInfo(vmi *v1.VirtualMachineInstance, volume string) *v1.PersistentVolumeClaimInfo {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == volume {
			return s.PersistentVolumeClaimInfo
		}
	}
	return nil
}

// Names reports whether a template has the volume of a move on the claim that it goes to.
func (m Move) Names(template *v1.VirtualMachineInstanceSpec) bool {
	return claimOf(template, m.Volume) == m.To
}

// Open reports whether a template has each volume where it is or where it goes to. Otherwise somebody wants it
// on another claim.
func Open(template *v1.VirtualMachineInstanceSpec, moves []Move) bool {
	return !slices.ContainsFunc(moves, func(m Move) bool {
		return !m.Names(template) && claimOf(template, m.Volume) != m.From
	})
}

// Name has the template of a VM name the claims that disks go to. The names of its dataVolumeTemplates go
// along, since each must be that of a volume; what they would be filled with stays.
func Name(vm *v1.VirtualMachine, moves []Move) {
	for _, m := range moves {
		if v := find(&vm.Spec.Template.Spec, m.Volume); v != nil && claimOf(&vm.Spec.Template.Spec, m.Volume) == m.From {
			v.VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: m.To, Hotpluggable: machine.Hotpluggable(v)}}
			renameTemplate(vm, m.From, m.To)
		}
	}
}

// TakeBack has the template of a VM name the claims that the disks of its VMI are on, where it names those that they
// would go to.
func TakeBack(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, moves []Move) {
	for _, m := range moves {
		v, is := find(&vm.Spec.Template.Spec, m.Volume), find(&vmi.Spec, m.Volume)
		if v != nil && is != nil && m.Names(&vm.Spec.Template.Spec) {
			v.VolumeSource = *is.VolumeSource.DeepCopy()
			renameTemplate(vm, m.To, m.From)
		}
	}
}

// renameTemplate has one of the dataVolumeTemplates make a DataVolume of another name.
func renameTemplate(vm *v1.VirtualMachine, from, to string) {
	for i := range vm.Spec.DataVolumeTemplates {
		if t := &vm.Spec.DataVolumeTemplates[i]; t.Name == from {
			t.Name = to
		}
	}
}

// NewDestination returns the DataVolume by which the claim is made that a disk goes to: like the one that it is
// on, and as large. owned has it go with the VM, as the old one does.
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

// MadeForDrain reports whether a DataVolume was made for a drain of a VM, and is not on its way out.
func MadeForDrain(dv *cdiv1.DataVolume, vm *v1.VirtualMachine) bool {
	return dv.DeletionTimestamp == nil && dv.Labels[DrainLabel] == string(vm.UID)
}

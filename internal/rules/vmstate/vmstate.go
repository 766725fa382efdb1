// Package vmstate holds the rules of the claim that a VM's state is kept on which outlives its guests: the
// variables of its UEFI firmware, and what its TPM knows.
//
// It owns which VMs have such a claim, its name, its shape, and whose a claim of that name is. It is pure. What
// lies on the claim is package layout's, and when it is made is package vmilifecycle's.
//
// The name follows from the owner's name and UID, so that whoever makes it, on whatever stale view, makes one.
// The owner is the VM, with which the claim goes, or the VMI that belongs to none (decision 441).
package vmstate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
)

// Volume is what facts about the claim go by where a VMI's volumes have their names. No volume can have it: a
// volume's name has no slash.
const Volume = "vm/state"

// OwnerLabel has the name of the VM that a claim is of. It is for people: whose a claim is, its owner reference
// says.
const OwnerLabel = "persistent-state-for"

// size is what is asked for: the variables are half a mebibyte, a TPM's state is some kilobytes, and a file
// system needs room for itself.
const size = "10Mi"

// Kept reports whether a guest has state that is kept on a claim.
func Kept(spec *v1.VirtualMachineInstanceSpec) bool {
	return machine.KeepsVariables(spec) || machine.KeepsTPM(spec)
}

// AwaitedAnnotation is on a VM whose state a restore brings back, which it names. The VM does not start before that
// is done and the annotation gone: its first guest would have new state made.
const AwaitedAnnotation = "drydock.dev/awaits-state-of"

// Next is a VM's VMI as far as its state goes, whether there is one at the time or not.
func Next(vm *v1.VirtualMachine) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: vm.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
	}}
	if vm.Spec.Template != nil {
		vmi.Spec = vm.Spec.Template.Spec
	}
	return vmi
}

// ClaimOf is the name of the claim of a VM's state, "" for a VM that keeps none. A VM with a preference may keep state
// because of it, which its template does not say: it has the claim if it does.
func ClaimOf(vm *v1.VirtualMachine) string {
	if vm.Spec.Preference == nil && !Kept(&Next(vm).Spec) {
		return ""
	}
	return layout.StateClaimName(vm.Name, string(vm.UID))
}

// ClaimName is the name of the claim, "" for a VMI without state to keep.
func ClaimName(vmi *v1.VirtualMachineInstance) string {
	if !Kept(&vmi.Spec) {
		return ""
	}
	owner := ownerOf(vmi)
	return layout.StateClaimName(owner.Name, string(owner.UID))
}

// ownerOf is the VM of a VMI, or the VMI itself: those of a replica set have a state each.
func ownerOf(vmi *v1.VirtualMachineInstance) metav1.OwnerReference {
	if owner := metav1.GetControllerOf(vmi); owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind {
		return *owner
	}
	return *metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)
}

// Claim renders the claim of a VMI that has one. class is the name of its storage class, "" to leave it to the
// API server; profile is what is known of that class, nil for nothing.
func Claim(vmi *v1.VirtualMachineInstance, class string, profile *cdiv1.StorageProfile) *corev1.PersistentVolumeClaim {
	owner := ownerOf(vmi)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: ClaimName(vmi),
			Labels:          map[string]string{OwnerLabel: layout.LabelValue(owner.Name)},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{accessMode(profile)},
			VolumeMode:  new(corev1.PersistentVolumeFilesystem),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse(size),
			}},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

// accessMode is ReadWriteMany, with which a guest can migrate, where the class is known to have file systems with
// it. A claim that asks for what its class does not have is never bound.
func accessMode(profile *cdiv1.StorageProfile) corev1.PersistentVolumeAccessMode {
	if profile == nil {
		return corev1.ReadWriteOnce
	}
	sets := profile.Spec.ClaimPropertySets
	if len(sets) == 0 {
		sets = profile.Status.ClaimPropertySets
	}
	if slices.ContainsFunc(sets, func(set cdiv1.ClaimPropertySet) bool {
		return set.VolumeMode != nil && *set.VolumeMode == corev1.PersistentVolumeFilesystem &&
			slices.Contains(set.AccessModes, corev1.ReadWriteMany)
	}) {
		return corev1.ReadWriteMany
	}
	return corev1.ReadWriteOnce
}

// Check returns why a claim of the name can't be the VMI's, nil if it is. Only the owner's UID counts: names and
// labels are anybody's to write.
func Check(vmi *v1.VirtualMachineInstance, claim *corev1.PersistentVolumeClaim) error {
	owner := ownerOf(vmi)
	is := metav1.GetControllerOf(claim)
	switch {
	case is == nil || is.UID != owner.UID:
		return fmt.Errorf("the PVC %s, on which the state of %s %s is to be kept, belongs to something else: delete it",
			claim.Name, owner.Kind, owner.Name)
	case claim.DeletionTimestamp != nil:
		return fmt.Errorf("the PVC %s, on which the state of %s %s is kept, is being deleted: a new one is made when it is gone",
			claim.Name, owner.Kind, owner.Name)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return fmt.Errorf("the PVC %s, on which the state of %s %s is to be kept, is a block device: it must have a file system",
			claim.Name, owner.Kind, owner.Name)
	}
	return nil
}

// Immovable says why a guest with state on a claim can't be brought to another node; empty when it can, or has
// none. claim is what is known of the claim, nil for nothing.
func Immovable(vmi *v1.VirtualMachineInstance, claim *v1.PersistentVolumeClaimInfo) string {
	name := ClaimName(vmi)
	switch {
	case name == "":
		return ""
	case claim == nil:
		return fmt.Sprintf("PVC %s of the VM's state is not known yet", name)
	case !slices.Contains(claim.AccessModes, corev1.ReadWriteMany):
		return fmt.Sprintf("PVC %s of the VM's state (UEFI variables, TPM) is not shared (using ReadWriteMany access mode)", name)
	}
	return ""
}

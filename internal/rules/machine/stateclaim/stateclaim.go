// Package stateclaim holds the rules of the claim with the VM state that outlives its guests: its UEFI variables and
// the state of its TPM.
//
// It decides which VMs have such a claim, its name, its spec, and the owner of a claim with that name. It must not know
// the paths on the claim (package layout) or when it is created (package vmicontroller).
//
// The name follows from the owner's name and UID, so that every creator, even with a stale cache, creates the same one.
// The owner is the VM, with which the claim is deleted, or a VMI without a VM (decision 441).
package stateclaim

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

// Volume is the key of the state's claim among facts by volume name. No volume's name has a slash.
const Volume = "vm/state"

// OwnerLabel has the name of the claim's VM, for people.
const OwnerLabel = "persistent-state-for"

// The variables take half a mebibyte, a TPM's state some kilobytes, and the file system its own share.
const size = "10Mi"

// Kept reports whether a guest has state on a claim.
func Kept(spec *v1.VirtualMachineInstanceSpec) bool {
	return machine.KeepsVariables(spec) || machine.KeepsTPM(spec)
}

// AwaitedAnnotation of a VM names the restore that brings back its state. Until it is removed, the VM does not start:
// its first guest would create new state.
const AwaitedAnnotation = "drydock.dev/awaits-state-of"

// Next returns a VM's VMI for the rules of its state.
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

// ClaimOf returns the claim of a VM's state, "" for none. With a preference, which may imply state, it always returns a
// name.
func ClaimOf(vm *v1.VirtualMachine) string {
	if vm.Spec.Preference == nil && !Kept(&Next(vm).Spec) {
		return ""
	}
	return layout.StateClaimName(vm.Name, string(vm.UID))
}

// ClaimName returns the name of the claim, "" for a VMI without state.
func ClaimName(vmi *v1.VirtualMachineInstance) string {
	if !Kept(&vmi.Spec) {
		return ""
	}
	owner := ownerOf(vmi)
	return layout.StateClaimName(owner.Name, string(owner.UID))
}

// The VMIs of a replica set each have their own state.
func ownerOf(vmi *v1.VirtualMachineInstance) metav1.OwnerReference {
	if owner := metav1.GetControllerOf(vmi); owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind {
		return *owner
	}
	return *metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)
}

// Claim returns the claim of a VMI with state. class is its storage class, "" for the default; profile is that class's,
// nil if unknown.
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

// accessMode is ReadWriteMany, with which a guest can migrate, if the class is known to support it for file systems. A
// claim with an unsupported mode is never bound.
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

// Check returns why a claim of that name can't be the VMI's, nil if it is. Anybody can write names and labels; only the
// owner's UID counts.
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

// Immovable returns why its state's claim, nil if unknown, keeps a guest from migrating, "" if it does not.
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

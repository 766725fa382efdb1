package datavolume

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// MadeForVM is an annotation with the name of the DataVolume's VM. The label kubevirt.io/created-by has the VM's UID,
// which identifies nothing once the VM is gone.
const MadeForVM = "drydock.dev/made-for-vm"

// GiveTo makes the VM the DataVolume's owner and records its name.
func GiveTo(vm *v1.VirtualMachine, dv *cdiv1.DataVolume) {
	if !metav1.IsControlledBy(dv, vm) {
		dv.OwnerReferences = append(dv.OwnerReferences, *metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind))
	}
	metav1.SetMetaDataLabel(&dv.ObjectMeta, v1.CreatedByLabel, string(vm.UID))
	metav1.SetMetaDataAnnotation(&dv.ObjectMeta, MadeForVM, vm.Name)
}

// Maker is a DataVolume's creator from a VM's point of view.
type Maker string

const (
	// ThisVM owns the DataVolume.
	ThisVM Maker = "this VM"
	// ThisVMUnnamed owns it; an earlier version did not record its name.
	ThisVMUnnamed Maker = "this VM, unnamed"
	// SameName means a VM of the same name, which does not own the DataVolume any more.
	SameName Maker = "a VM of that name"
	// AnotherVM means a VM of another or unknown name, which does not own it any more.
	AnotherVM Maker = "another VM"
	// Somebody is another owner.
	Somebody Maker = "somebody else"
	// Nobody means that a user created it.
	Nobody Maker = "nobody"
)

// MakerOf returns the maker: a VM of another name must not delete the DataVolume with itself.
func MakerOf(dv *cdiv1.DataVolume, vm *v1.VirtualMachine) Maker {
	owner, made := metav1.GetControllerOf(dv), dv.Labels[v1.CreatedByLabel]
	switch {
	case owner != nil && owner.UID != vm.UID:
		return Somebody
	case owner != nil && made == string(vm.UID) && dv.Annotations[MadeForVM] == "":
		return ThisVMUnnamed
	case owner != nil:
		return ThisVM
	case made == "":
		return Nobody
	case dv.Annotations[MadeForVM] == vm.Name:
		return SameName
	}
	return AnotherVM
}

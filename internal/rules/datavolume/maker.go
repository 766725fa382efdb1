package datavolume

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// MadeForVM is the annotation with the name of the VM that a DataVolume was made for. The label kubevirt.io/created-by has the
// VM's UID, which says nothing any more when the VM is gone.
const MadeForVM = "drydock.dev/made-for-vm"

// GiveTo has a DataVolume go with a VM that it was made for, and says so by the VM's name.
func GiveTo(vm *v1.VirtualMachine, dv *cdiv1.DataVolume) {
	if !metav1.IsControlledBy(dv, vm) {
		dv.OwnerReferences = append(dv.OwnerReferences, *metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind))
	}
	metav1.SetMetaDataLabel(&dv.ObjectMeta, v1.CreatedByLabel, string(vm.UID))
	metav1.SetMetaDataAnnotation(&dv.ObjectMeta, MadeForVM, vm.Name)
}

// Maker is who has made a DataVolume, as far as a VM has to know.
type Maker string

const (
	// ThisVM means that the DataVolume is the VM's.
	ThisVM Maker = "this VM"
	// ThisVMUnnamed means the same, of an earlier version, which has not noted the VM's name.
	ThisVMUnnamed Maker = "this VM, unnamed"
	// SameName means that a VM of the same name had the DataVolume, which has lost it.
	SameName Maker = "a VM of that name"
	// AnotherVM means that a VM had the DataVolume and has lost it, and that it had another name, or one that is not known.
	AnotherVM Maker = "another VM"
	// Somebody means that the DataVolume has another owner.
	Somebody Maker = "somebody else"
	// Nobody means that a user has made the DataVolume.
	Nobody Maker = "nobody"
)

// MakerOf tells who has made a DataVolume. Only a VM that has made it, or had the name of the VM that did, may take it along
// when it goes.
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

//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// The cluster's garbage collector removes the VM as owner from the revisions of its template, its type and its
// preference; virt-controller removes it from one of an earlier version with unsorted fields, and from one with spaces in
// its data. A new VM must still use them.
func TestAVMIsOrphanedFromItsRevisions(t *testing.T) {
	w := newWorld(t)
	w.createType("three", 3)
	w.createPreference("cores", instancetypev1.Cores)
	w.createTypedVM("vm")
	w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	for name, data := range map[string]string{
		"revision-start-vm-of-old": `{"template":{"spec":{"domain":{"devices":{}},"architecture":"amd64"},"metadata":{}}}`,
		"made-by-hand":             `{"kind": "VirtualMachineInstancetype",  "spec": {}}`,
	} {
		w.do("making the revision "+name, w.client.Create(w.ctx, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: name, Labels: map[string]string{vmcontroller.RevisionLabel: string(vm.UID)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
			},
			Data: runtime.RawExtension{Raw: []byte(data)},
		}))
	}
	w.collectorKnows(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{}`)}})
	w.do("deleting the VM alone", w.client.Delete(w.ctx, vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the VM to go", func() (bool, string) { return w.vm("vm") == nil, "it is still there" })
	var list appsv1.ControllerRevisionList
	w.do("listing revisions", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	if len(list.Items) != 5 {
		t.Errorf("%d revisions are left, want 5", len(list.Items))
	}
	for i := range list.Items {
		if r := &list.Items[i]; len(r.OwnerReferences) > 0 {
			t.Errorf("the revision %s has the owners %+v", r.Name, r.OwnerReferences)
		}
	}
	if vmi := w.vmi("vm"); vmi == nil || vmi.DeletionTimestamp != nil {
		t.Errorf("the VMI that was left is %+v", vmi)
	}
}

// Two VMs have a disk of the same name. The second must not get the disk that the first left behind, and its end must
// not delete that disk. A new VM with the first one's name must get it.
func TestAnOrphanedDataVolumeIsNoOtherVMs(t *testing.T) {
	w := newWorld(t)
	first := w.createVMWithDisk("first")
	w.eventually("the DataVolume of the first VM", func() (bool, string) { return w.disk() != nil, "there is none" })
	made := w.disk().UID
	w.collectorKnows(&cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
		Source:  &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
		Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}})
	w.do("deleting the VM alone", w.client.Delete(w.ctx, first, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the VM to go", func() (bool, string) { return w.vm("first") == nil, "it is still there" })

	second := w.createVMWithDisk("second")
	w.awaitFailure("second", "the DataVolume disk exists and was made for the VM first, not for this VM, second")
	w.awaitSettled()
	if owners := w.disk().OwnerReferences; len(owners) > 0 {
		t.Errorf("the DataVolume has the owners %+v", owners)
	}
	w.do("deleting the second VM", w.client.Delete(w.ctx, second))
	w.eventually("the second VM to go", func() (bool, string) { return w.vm("second") == nil, "it is still there" })

	again := w.createVMWithDisk("first")
	w.eventually("the adoption", func() (bool, string) {
		dv := w.disk()
		return dv != nil && dv.UID == made && metav1.IsControlledBy(dv, again) && dv.Labels[v1.CreatedByLabel] == string(again.UID), fmt.Sprintf("it is %+v", dv)
	})
}

// collectorKnows waits until the cluster's garbage collector knows the objects of a kind: it must delete last, whose
// owner does not exist. It would later collect an object that it does not know when the owner is orphaned.
func (w *world) collectorKnows(last client.Object) {
	w.t.Helper()
	last.SetNamespace(w.namespace)
	last.SetName("collected")
	last.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}})
	w.do("making an object whose owner does not exist", w.client.Create(w.ctx, last))
	w.eventually("the garbage collector", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(last), last)
		return apierrors.IsNotFound(err), fmt.Sprintf("the object is there (%v)", err)
	})
}

func (w *world) createVMWithDisk(name string) *v1.VirtualMachine {
	w.t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: testSpec()},
			DataVolumeTemplates: []v1.DataVolumeTemplateSpec{{
				ObjectMeta: metav1.ObjectMeta{Name: "disk"},
				Spec: cdiv1.DataVolumeSpec{
					Source:  &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
					Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
				},
			}},
		},
	}
	w.do("creating the VM "+name, w.client.Create(w.ctx, vm))
	return vm
}

// disk returns the DataVolume disk, or nil.
func (w *world) disk() *cdiv1.DataVolume {
	w.t.Helper()
	dv := &cdiv1.DataVolume{}
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "disk"}, dv)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading the DataVolume", err)
	return dv
}

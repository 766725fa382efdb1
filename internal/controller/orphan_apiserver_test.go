//go:build apiserver

package controller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vmlifecycle"
)

// The cluster's garbage collector takes the VM off the revisions of its template, its type and its preference, and off one that
// earlier versions have made, whose fields are not sorted.
func TestAVMIsOrphanedFromItsRevisions(t *testing.T) {
	w := newWorld(t)
	w.createType("three", 3)
	w.createPreference("cores", instancetypev1.Cores)
	w.createTypedVM("vm")
	w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.do("making a revision as of old", w.client.Create(w.ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "revision-start-vm-of-old", Labels: map[string]string{vmlifecycle.RevisionLabel: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: runtime.RawExtension{Raw: []byte(`{"template":{"spec":{"domain":{"devices":{}},"architecture":"amd64"},"metadata":{}}}`)},
	}))
	w.do("deleting the VM alone", w.client.Delete(w.ctx, vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the VM to go", func() (bool, string) { return w.vm("vm") == nil, "it is still there" })
	var list appsv1.ControllerRevisionList
	w.do("listing revisions", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	if len(list.Items) != 4 {
		t.Errorf("%d revisions are left, want 4", len(list.Items))
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

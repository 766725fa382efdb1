//go:build apiserver

package api

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
)

// memoryDumps asks for dumps of a VM that runs, as virt-controller goes on with them.
func (w *world) memoryDumps(t *testing.T) {
	for name, size := range map[string]string{"dump": "4Gi", "too-small": "64Mi"} {
		must(t, w.admin.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity(size)}},
			},
		}))
	}
	vm := w.vm("dumped")
	must(t, w.admin.Create(t.Context(), vm))
	ask := func(verb, body string) error {
		_, err := w.call(http.MethodPut, w.subresource("virtualmachines", "dumped", verb), body)
		return err
	}
	expect(t, ask("memorydump", `{"claimName":"dump"}`), "VM is not running")
	vmi := w.vmi("dumped")
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	controller := w.component(admission.ControllerServiceAccount)
	must(t, controller.Create(t.Context(), vmi))
	before := vmi.DeepCopy()
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, w.node.name
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), vmi, client.MergeFrom(before)))

	for body, want := range map[string]string{
		"":                           "needs the name of a claim",
		`{"claimName":"none"}`:       "the PVC [none] does not exist",
		`{"claimName":"too-small"}`:  "the PVC [too-small] has 64Mi, and a dump of the VM's memory needs ",
		`{"claimName":"dump","x":1}`: `unknown field "x"`,
	} {
		expect(t, ask("memorydump", body), want)
	}
	report := func(status string) {
		must(t, controller.Status().Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))))
	}
	report(`{"snapshotInProgress":"nightly"}`)
	expect(t, ask("memorydump", `{"claimName":"dump"}`), "its disks are needed as they are by the VirtualMachineSnapshot nightly")
	report(`{"snapshotInProgress":null}`)

	must(t, ask("memorydump", `{"claimName":"dump"}`))
	w.expectDump(t, `{"claimName":"dump","phase":"Associating"}`)
	expect(t, ask("memorydump", `{"claimName":"dump"}`), "is Associating: wait until it is Completed or Failed")
	// virt-controller may change the VMI's volumes, a user may not.
	volumes := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"utilityVolumes":[{"name":"dump","claimName":"dump","type":"MemoryDump"}]}}`))
	expect(t, w.admin.Patch(t.Context(), vmi.DeepCopy(), volumes), "update of VMI object is restricted")
	must(t, controller.Patch(t.Context(), vmi, volumes))
	_, err := w.call(http.MethodPut, w.subresource("virtualmachineinstances", "dumped", "addvolume"), addition("dump", ""))
	expect(t, err, "the guest's memory is being dumped to the PVC [dump]")

	report(`{"memoryDumpRequest":{"phase":"Completed","fileName":"old"}}`)
	must(t, controller.Patch(t.Context(), vmi, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"utilityVolumes":null}}`))))
	must(t, ask("memorydump", ""))
	w.expectDump(t, `{"claimName":"dump","phase":"Associating"}`)
	must(t, ask("removememorydump", ""))
	w.expectDump(t, `{"claimName":"dump","phase":"Dissociating","remove":true}`)
	report(`{"memoryDumpRequest":null}`)
	expect(t, ask("removememorydump", ""), "the VM dumped has no memory dump to remove")
}

func (w *world) expectDump(t *testing.T, want string) {
	t.Helper()
	got, err := json.Marshal(w.readVM(t, "dumped").Status.MemoryDumpRequest)
	if err != nil || string(got) != want {
		t.Errorf("the request is %s (%v), want %s", got, err, want)
	}
}

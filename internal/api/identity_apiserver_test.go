//go:build apiserver

package api

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/firmware"
)

const givenUUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"

var pathOfUUID = []string{"spec", "template", "spec", "domain", "firmware", "uuid"}

// identity runs the scenarios of the enhancement that defines the persistence of firmware UUIDs by their numbers, as
// far as they concern admission. The others concern virt-controller.
func (w *world) identity(t *testing.T) {
	t.Run("scenario 5: a new stopped VM with an empty UUID", w.newStoppedVMWithoutUUID)
	t.Run("scenario 6: a new stopped VM with a UUID", w.newStoppedVMWithUUID)
	t.Run("scenario 7: a new running VM", w.newRunningVM)
	t.Run("scenario 9: the UUID is modified", w.modifiedUUID)
	t.Run("scenario 10: the UUID is deleted", w.deletedUUID)
	t.Run("scenario 11: a new stand-alone VMI with a UUID", w.newVMIWithUUID)
	t.Run("scenario 12: a new stand-alone VMI with an empty UUID", w.newVMIWithoutUUID)
}

// vmWith is a VM with a run strategy and a UUID, "" for none.
func (w *world) vmWith(t *testing.T, name string, strategy v1.VirtualMachineRunStrategy, id string) *unstructured.Unstructured {
	t.Helper()
	vm := w.vm(name)
	must(t, unstructured.SetNestedField(vm.Object, string(strategy), "spec", "runStrategy"))
	if id != "" {
		must(t, unstructured.SetNestedField(vm.Object, id, pathOfUUID...))
	}
	return vm
}

// storedUUID returns a VM's UUID from the API server.
func (w *world) storedUUID(t *testing.T, vm *unstructured.Unstructured) string {
	t.Helper()
	is := w.vm(vm.GetName())
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vm), is))
	id, _, _ := unstructured.NestedString(is.Object, pathOfUUID...)
	return id
}

func isRandom(t *testing.T, id, name string) {
	t.Helper()
	if u, err := uuid.Parse(id); err != nil || u.Version() != 4 || types.UID(id) == firmware.Legacy(name) {
		t.Errorf("%s has the UUID %q, want a random one", name, id)
	}
}

func (w *world) newStoppedVMWithoutUUID(t *testing.T) {
	vm := w.vmWith(t, "scenario5", v1.RunStrategyHalted, "")
	must(t, w.admin.Create(t.Context(), vm))
	isRandom(t, w.storedUUID(t, vm), "scenario5")
}

func (w *world) newStoppedVMWithUUID(t *testing.T) {
	vm := w.vmWith(t, "scenario6", v1.RunStrategyHalted, givenUUID)
	must(t, w.admin.Create(t.Context(), vm))
	if id := w.storedUUID(t, vm); id != givenUUID {
		t.Errorf("the UUID is %s, want %s", id, givenUUID)
	}
}

// newRunningVM is updated after its creation, as by its controller.
func (w *world) newRunningVM(t *testing.T) {
	vm := w.vmWith(t, "scenario7", v1.RunStrategyAlways, "")
	must(t, w.admin.Create(t.Context(), vm))
	first := w.storedUUID(t, vm)
	isRandom(t, first, "scenario7")
	vm.SetLabels(map[string]string{"seen": "true"})
	must(t, w.admin.Update(t.Context(), vm))
	if id := w.storedUUID(t, vm); id != first {
		t.Errorf("the UUID is %s, was %s", id, first)
	}
}

func (w *world) modifiedUUID(t *testing.T) {
	vm := w.vmWith(t, "scenario9", v1.RunStrategyHalted, "")
	must(t, w.admin.Create(t.Context(), vm))
	must(t, unstructured.SetNestedField(vm.Object, givenUUID, pathOfUUID...))
	must(t, w.admin.Update(t.Context(), vm))
	if id := w.storedUUID(t, vm); id != givenUUID {
		t.Errorf("the UUID is %s, want %s", id, givenUUID)
	}
}

func (w *world) deletedUUID(t *testing.T) {
	vm := w.vmWith(t, "scenario10", v1.RunStrategyHalted, givenUUID)
	must(t, w.admin.Create(t.Context(), vm))
	without := vm.DeepCopy()
	unstructured.RemoveNestedField(without.Object, pathOfUUID...)
	for way, err := range map[string]error{
		"an update":     w.admin.Update(t.Context(), without),
		"a JSON patch":  w.admin.Patch(t.Context(), vm.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/template/spec/domain/firmware"}]`))),
		"a merge patch": w.admin.Patch(t.Context(), vm.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"domain":{"firmware":{"uuid":null}}}}}}`))),
	} {
		if err == nil || !strings.Contains(err.Error(), "spec.template.spec.domain.firmware.uuid: the firmware UUID can be changed but not removed; the VM has "+givenUUID) {
			t.Errorf("%s that removes the UUID: %v", way, err)
		}
	}
	if id := w.storedUUID(t, vm); id != givenUUID {
		t.Errorf("the UUID is %s, want %s", id, givenUUID)
	}
}

func (w *world) newVMIWithUUID(t *testing.T) {
	vmi := w.vmi("scenario11")
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: givenUUID}
	must(t, w.admin.Create(t.Context(), vmi))
	if id := vmi.Spec.Domain.Firmware.UUID; id != givenUUID {
		t.Errorf("the UUID is %s, want %s", id, givenUUID)
	}
}

func (w *world) newVMIWithoutUUID(t *testing.T) {
	vmi := w.vmi("scenario12")
	must(t, w.admin.Create(t.Context(), vmi))
	isRandom(t, string(vmi.Spec.Domain.Firmware.UUID), "scenario12")
}

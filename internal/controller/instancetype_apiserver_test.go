//go:build apiserver

package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

func (w *world) createType(name string, cpus uint32) *instancetypev1.VirtualMachineInstancetype {
	w.t.Helper()
	out := &instancetypev1.VirtualMachineInstancetype{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: instancetypev1.VirtualMachineInstancetypeSpec{
			CPU: instancetypev1.CPUInstancetype{Guest: cpus}, Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse("128Mi")},
		},
	}
	w.do("making the type "+name, w.client.Create(w.ctx, out))
	return out
}

func (w *world) createPreference(name string, topology instancetypev1.PreferredCPUTopology) *instancetypev1.VirtualMachinePreference {
	w.t.Helper()
	out := &instancetypev1.VirtualMachinePreference{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       instancetypev1.VirtualMachinePreferenceSpec{CPU: &instancetypev1.CPUPreferences{PreferredCPUTopology: &topology}},
	}
	w.do("making the preference "+name, w.client.Create(w.ctx, out))
	return out
}

func (w *world) createTypedVM(name string, edits ...func(*v1.VirtualMachine)) {
	w.t.Helper()
	spec := testSpec()
	spec.Domain.Memory = nil
	spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyAlways), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
			Instancetype: &v1.InstancetypeMatcher{Name: "three", Kind: instancetype.KindType},
			Preference:   &v1.PreferenceMatcher{Name: "cores", Kind: instancetype.KindPreference},
		},
	}
	for _, edit := range edits {
		edit(vm)
	}
	w.do("creating the VM", w.client.Create(w.ctx, vm))
}

// hasShape checks the CPUs of a VMI.
func (w *world) hasShape(name string, sockets, cores uint32) {
	w.t.Helper()
	if cpu := w.vmi(name).Spec.Domain.CPU; cpu == nil || cpu.Sockets != sockets || cpu.Cores != cores {
		w.t.Errorf("the VMI %s has the CPUs %+v, want %d sockets of %d cores", name, cpu, sockets, cores)
	}
}

func (w *world) keptFor(vm string) []string {
	w.t.Helper()
	var list appsv1.ControllerRevisionList
	w.do("listing revisions", w.client.List(w.ctx, &list, client.InNamespace(w.namespace), client.HasLabels{instancetypeapi.ControllerRevisionObjectUIDLabel}))
	var names []string
	for _, revision := range list.Items {
		if len(revision.OwnerReferences) == 1 && revision.OwnerReferences[0].Name == vm {
			names = append(names, revision.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *world) again(name string, pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	first := w.vmi(name)
	w.end(name, pod, v1.Succeeded)
	w.successor(first)
	return w.run(name)
}

// The type and the preference of a running VM change, and are deleted. Its later guests must be the same, and
// nothing be written. Another VM must get the new versions, and so must the first one when it selects the type
// anew.
func TestARunningVMKeepsTheShapeOfItsType(t *testing.T) {
	w := newWorld(t)
	three, cores := w.createType("three", 3), w.createPreference("cores", instancetypev1.Cores)
	w.createType("two", 2)
	w.createTypedVM("vm")
	pod := w.run("vm")
	w.hasShape("vm", 1, 3)
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	named := []string{instancetype.RevisionOf(vm.Status.InstancetypeRef), instancetype.RevisionOf(vm.Status.PreferenceRef)}
	slices.Sort(named)
	if kept := w.keptFor("vm"); len(kept) != 2 || !slices.Equal(kept, named) {
		t.Errorf("the revisions %q are kept, and the status names %q", kept, named)
	}
	if vm.Spec.Instancetype.RevisionName != "" || vm.Spec.Template.Spec.Domain.CPU != nil {
		t.Errorf("the VM's spec was written: %+v", vm.Spec)
	}
	w.awaitSettled()

	before := w.writes.of(w.namespace)
	three.Spec.CPU.Guest, cores.Spec.CPU.PreferredCPUTopology = 5, new(instancetypev1.Sockets)
	w.do("changing the type", w.client.Update(w.ctx, three))
	w.do("changing the preference", w.client.Update(w.ctx, cores))
	w.awaitSettled()
	if after := w.writes.of(w.namespace); !slices.Equal(before, after) {
		t.Errorf("there were the writes %q", after[len(before):])
	}
	w.createTypedVM("second")
	w.awaitLauncher("second")
	w.hasShape("second", 5, 1)
	pod = w.again("vm", pod)
	w.hasShape("vm", 1, 3)

	w.remove(&instancetypev1.VirtualMachineInstancetype{}, "three")
	w.remove(&instancetypev1.VirtualMachinePreference{}, "cores")
	w.restartLoops()
	pod = w.again("vm", pod)
	w.hasShape("vm", 1, 3)

	w.edit("vm", func(vm *v1.VirtualMachine) { vm.Spec.Instancetype.Name = "two" })
	w.awaitRestartRequired("spec.template.spec.domain.cpu.cores")
	w.hasShape("vm", 1, 3)
	w.again("vm", pod)
	w.hasShape("vm", 1, 2)
	w.eventually("the revision of the first type to go", func() (bool, string) {
		kept := w.keptFor("vm")
		return len(kept) == 2 && !slices.Contains(kept, instancetype.RevisionOf(vm.Status.InstancetypeRef)), fmt.Sprint(kept)
	})
}

// Admission did not see a conflicting VM: it must get no guest, and a condition name the field.
func TestAConflictWithATypeIsNamedByItsPath(t *testing.T) {
	w := newWorld(t)
	w.createType("three", 3)
	w.createPreference("cores", instancetypev1.Cores)
	w.createTypedVM("vm", func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
	})
	w.awaitFailure("vm", "spec.template.spec.domain.memory.guest: Forbidden: VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type: the instance type three")
	w.awaitSettled()
	if w.vmi("vm") != nil {
		t.Error("there is a VMI")
	}
	w.edit("vm", func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Domain.Memory = nil })
	w.awaitLauncher("vm")
	w.hasShape("vm", 1, 3)
}

// The guest must run on, and no other may follow it.
func TestARevisionIsDeletedUnderAVM(t *testing.T) {
	w := newWorld(t)
	w.createType("three", 3)
	w.createPreference("cores", instancetypev1.Cores)
	w.createTypedVM("vm")
	pod := w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.stop()
	name := instancetype.RevisionOf(w.vm("vm").Status.InstancetypeRef)
	w.remove(&appsv1.ControllerRevision{}, name)
	w.startLoops()
	w.awaitFailure("vm", "Failure to find the ControllerRevision that the VM goes by")
	first := w.vmi("vm")
	if first.DeletionTimestamp != nil || first.Status.Phase != v1.Running {
		t.Errorf("the guest did not go on: %+v", first.Status)
	}
	w.end("vm", pod, v1.Succeeded)
	w.noSuccessor(first)
}

// The steps of docs/migrating-from-kubevirt.md for VMs with instance types: the revisions that KubeVirt wrote lose
// their owner, the VM is deleted without them, its type changes, and the VM is applied again with their names. It must
// keep its shape.
func TestRevisionsThatKubeVirtMadeComeAlong(t *testing.T) {
	w := newWorld(t)
	old := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: w.namespace},
		Spec:       v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: testSpec()}},
	}
	w.do("creating the VM of old", w.client.Create(w.ctx, old))
	// The stored fields are in Go's order, not sorted.
	w.createKubeVirtsRevision(old, "vm-three-1", `{"kind":"VirtualMachineInstancetype","apiVersion":"instancetype.kubevirt.io/v1beta1","metadata":`+
		`{"name":"three","namespace":"x","uid":"3c2ae4ee-0d5c-4a5b-9f1b-1d0a4e0b5b11","generation":1,"creationTimestamp":null},`+
		`"spec":{"memory":{"guest":"128Mi"},"cpu":{"guest":3}}}`)
	w.createKubeVirtsRevision(old, "vm-chosen-1", `{"kind":"VirtualMachinePreference","apiVersion":"instancetype.kubevirt.io/v1beta1","metadata":`+
		`{"name":"chosen","namespace":"x","uid":"3c2ae4ee-0d5c-4a5b-9f1b-1d0a4e0b5b12","generation":1,"creationTimestamp":null},`+
		`"spec":{"cpu":{"preferredCPUTopology":"cores"}}}`)
	w.createType("three", 5)
	w.createPreference("chosen", instancetypev1.Sockets)

	var all appsv1.ControllerRevisionList
	w.do("listing the revisions", w.client.List(w.ctx, &all, client.InNamespace(w.namespace), client.HasLabels{instancetypeapi.ControllerRevisionObjectUIDLabel}))
	for i := range all.Items {
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/metadata/ownerReferences"}]`))
		w.do("taking a revision from its owner", w.client.Patch(w.ctx, &all.Items[i], patch))
	}
	w.do("deleting the VM of old", w.client.Delete(w.ctx, old, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the VM of old to be gone", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(old), &v1.VirtualMachine{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})

	w.createTypedVM("vm", func(vm *v1.VirtualMachine) {
		vm.Spec.Preference.Name = "chosen"
		vm.Spec.Instancetype.RevisionName, vm.Spec.Preference.RevisionName = "vm-three-1", "vm-chosen-1"
	})
	w.run("vm")
	w.hasShape("vm", 1, 3)
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	if got := instancetype.RevisionOf(vm.Status.InstancetypeRef) + " " + instancetype.RevisionOf(vm.Status.PreferenceRef); got != "vm-three-1 vm-chosen-1" {
		t.Errorf("the VM's status names the revisions %s", got)
	}
}

// KubeVirt once made revisions without the version label, and rewrites those that a VM's status names. Here the missing
// label must be added.
func TestARevisionGetsTheLabelsThatItLacks(t *testing.T) {
	w := newWorld(t)
	w.createType("three", 3)
	w.createPreference("cores", instancetypev1.Cores)
	w.createTypedVM("vm", func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = new(v1.RunStrategyHalted) })
	w.eventually("the VM to go by a revision", func() (bool, string) {
		kept := instancetype.RevisionOf(w.vm("vm").Status.InstancetypeRef)
		return kept != "", kept
	})
	vm := w.vm("vm")
	w.createKubeVirtsRevision(vm, "legacy", `{"kind":"VirtualMachineInstancetype","apiVersion":"instancetype.kubevirt.io/v1beta1","metadata":`+
		`{"name":"three","namespace":"x","uid":"3c2ae4ee-0d5c-4a5b-9f1b-1d0a4e0b5b11","generation":1,"creationTimestamp":null},`+
		`"spec":{"memory":{"guest":"128Mi"},"cpu":{"guest":2}}}`)
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "legacy"}}
	w.do("taking a label off", w.client.Patch(w.ctx, revision, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"`+instancetypeapi.ControllerRevisionObjectVersionLabel+`": null}}}`))))
	data := string(revision.Data.Raw)
	w.do("naming the revision", w.client.Status().Patch(w.ctx, vm, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/status/instancetypeRef/controllerRevisionRef/name", "value": "legacy"}]`))))
	w.eventually("the label to be there", func() (bool, string) {
		w.do("reading the revision", w.client.Get(w.ctx, client.ObjectKeyFromObject(revision), revision))
		return revision.Labels[instancetypeapi.ControllerRevisionObjectVersionLabel] == "v1beta1", fmt.Sprint(revision.Labels)
	})
	if len(revision.OwnerReferences) != 1 || string(revision.Data.Raw) != data {
		t.Errorf("more of the revision changed: %+v", revision)
	}
	if got := instancetype.RevisionOf(w.vm("vm").Status.InstancetypeRef); got != "legacy" {
		t.Errorf("the VM goes by %s", got)
	}
}

// KubeVirt 1.5 to 1.9 does it so.
func (w *world) createKubeVirtsRevision(owner *v1.VirtualMachine, name, kept string) {
	w.t.Helper()
	var object metav1.PartialObjectMetadata
	w.do("reading what the revision keeps", json.Unmarshal([]byte(kept), &object))
	w.do("making the revision "+name, w.client.Create(w.ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name,
			Labels: map[string]string{
				"instancetype.kubevirt.io/object-generation": "1", "instancetype.kubevirt.io/object-kind": object.Kind,
				instancetypeapi.ControllerRevisionObjectNameLabel: object.Name, instancetypeapi.ControllerRevisionObjectUIDLabel: string(object.UID),
				instancetypeapi.ControllerRevisionObjectVersionLabel: "v1beta1",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1.VirtualMachineGroupVersionKind)},
		},
		Data: runtime.RawExtension{Raw: []byte(kept)},
	}))
}

// awaitFailure waits until a VM reports why it gets no guest, now or after this one.
func (w *world) awaitFailure(name, why string) {
	w.t.Helper()
	w.eventually("the VM to say "+why, func() (bool, string) {
		for _, c := range w.vm(name).Status.Conditions {
			if c.Type == v1.VirtualMachineFailure {
				return strings.Contains(c.Message, why), c.Message
			}
		}
		return false, "it has no condition Failure"
	})
}

//go:build apiserver

package controller

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// virt-controller is stopped meanwhile.
func (w *world) beforeTheRule(name string, strategy v1.VirtualMachineRunStrategy) {
	w.t.Helper()
	w.stop()
	w.takeUUIDAway(w.createVM(name, strategy))
}

func (w *world) takeUUIDAway(vm *v1.VirtualMachine) {
	w.t.Helper()
	before := vm.DeepCopy()
	vm.Spec.Template.Spec.Domain.Firmware = nil
	w.do("taking the UUID away", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
}

func (w *world) awaitUUID(name string) {
	w.t.Helper()
	w.eventually("the VM to have its legacy UUID", func() (bool, string) {
		f := w.vm(name).Spec.Template.Spec.Domain.Firmware
		return f != nil && f.UUID == firmware.Legacy(name), "it has not"
	})
}

func TestScenario1AStoppedVMWithoutAUUIDGetsItsLegacyOne(t *testing.T) {
	w := newWorld(t)
	w.beforeTheRule("vm-cirros", v1.RunStrategyHalted)
	w.startLoops()
	w.awaitUUID("vm-cirros")
	if vmis := w.pods(); len(vmis) != 0 {
		t.Errorf("a stopped VM has %d launcher pods", len(vmis))
	}
	generation := w.vm("vm-cirros").Generation
	w.awaitSettled()
	if now := w.vm("vm-cirros").Generation; now != generation {
		t.Errorf("the template was patched again: generation %d, was %d", now, generation)
	}
}

func TestScenario2AStoppedVMWithAUUIDIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	before := w.createVM("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	w.awaitSettled()
	after := w.vm("vm")
	if is, was := after.Spec.Template.Spec.Domain.Firmware.UUID, before.Spec.Template.Spec.Domain.Firmware.UUID; is != was || after.Generation != before.Generation {
		t.Errorf("the UUID is %s, was %s; generation %d, was %d", is, was, after.Generation, before.Generation)
	}
}

// The running VM is older than the rule: its guest must keep its UUID, and its template get the same.
func TestScenario3ARunningVMWithoutAUUIDGetsWhatItsGuestHas(t *testing.T) {
	w := newWorld(t)
	w.beforeTheRule("vm-cirros", v1.RunStrategyAlways)
	w.startLoops()
	w.run("vm-cirros")
	w.awaitPrintable("vm-cirros", v1.VirtualMachineStatusRunning)
	w.stop()
	w.takeUUIDAway(w.vm("vm-cirros"))
	before := w.vmi("vm-cirros")
	w.startLoops()
	w.awaitUUID("vm-cirros")
	w.awaitSettled()
	vmi, vm := w.vmi("vm-cirros"), w.vm("vm-cirros")
	if vmi.UID != before.UID || vmi.Spec.Domain.Firmware.UUID != firmware.Legacy("vm-cirros") {
		t.Errorf("the guest is %s with the UUID %s, was %s", vmi.UID, vmi.Spec.Domain.Firmware.UUID, before.UID)
	}
	if condition.IsTrue(vm.Status.Conditions, v1.VirtualMachineRestartRequired) {
		t.Error("the VM is to be restarted")
	}
}

package vmcontroller

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func dumping(phase v1.MemoryDumpPhase) vmEdit {
	return func(vm *v1.VirtualMachine) {
		vm.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: phase}
	}
}

// Package memorydump has the rule. Its volumes reach the VMI, and stay there: the template has none.
func TestAMemoryDumpReachesTheVMI(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways, dumping(v1.MemoryDumpAssociating))
	vmi := newTestVMI(running)
	p := decide(Observed{VM: vm, VMI: vmi, Now: now})
	if p.Sync == nil || len(p.Sync.Spec.UtilityVolumes) != 1 || p.Sync.Spec.UtilityVolumes[0].ClaimName != "dump" {
		t.Fatalf("the VMI gets %+v", p.Sync)
	}
	if p.VM.Status.MemoryDumpRequest.Phase != v1.MemoryDumpAssociating {
		t.Errorf("the request is %+v", p.VM.Status.MemoryDumpRequest)
	}
	if again := decide(Observed{VM: vm, VMI: p.Sync, Now: now}); again.Sync != nil {
		t.Errorf("then the VMI gets %+v", again.Sync.Spec.UtilityVolumes)
	}
	vm = newVM(v1.RunStrategyAlways, dumping(v1.MemoryDumpUnmounting))
	if p = decide(Observed{VM: vm, VMI: p.Sync, Now: now}); p.Sync == nil || len(p.Sync.Spec.UtilityVolumes) > 0 {
		t.Errorf("at its end the VMI gets %+v", p.Sync)
	}
}

// A guest whose end only a cache reports may be one that has just started.
func TestALostMemoryDumpIsAskedFor(t *testing.T) {
	vm := newVM(v1.RunStrategyHalted, dumping(v1.MemoryDumpInProgress))
	p := Decide(Observed{VM: vm, VMConfirmed: true, Now: now})
	if p.Needs != NeedVMI || p.VM.Status.MemoryDumpRequest.Phase != v1.MemoryDumpInProgress {
		t.Errorf("it needs %q, and the request is %+v", p.Needs, p.VM.Status.MemoryDumpRequest)
	}
	if p = decide(Observed{VM: vm, Now: now}); p.VM.Status.MemoryDumpRequest.Phase != v1.MemoryDumpFailed {
		t.Errorf("the request is %+v", p.VM.Status.MemoryDumpRequest)
	}
}

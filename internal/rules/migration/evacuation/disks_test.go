package evacuation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// onLocalDisk puts the guest's disk on a claim for one node, and returns its VM, which lets a drain move it.
func onLocalDisk(vmi *v1.VirtualMachineInstance) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm-uid",
		Annotations: map[string]string{volumemigration.DrainAnnotation: volumemigration.DrainMigrate}}}
	vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
	claim := &v1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "data"
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *vmi.Spec.DeepCopy()}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "disk", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
		ClaimName: "data", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable,
		Status: corev1.ConditionFalse, Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "PVC data is not shared"}}
	return vm
}

func TestWhichDisksGoWithAGuest(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*v1.VirtualMachine, *v1.VirtualMachineInstance)
		moves bool
	}{
		"its VM lets them": {nil, true},
		"LiveMigrateIfPossible": {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
			vmi.Spec.EvictionStrategy = new(ifPossible)
		}, true},
		"they are on their way": {func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
			volumemigration.WriteNewClaims(vm, volumemigration.MovesOffNode(vmi))
			vmi.Status.Conditions = nil
		}, true},
		"its VM says nothing of it": {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) { vm.Annotations = nil }, false},
		"its VM changes volumes by restarts": {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) {
			vm.Spec.UpdateVolumesStrategy = nil
		}, false},
		"its VM wants the disk elsewhere": {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) {
			vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
		}, false},
		"its VM has no template":     {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) { vm.Spec.Template = nil }, false},
		"its VM is being deleted":    {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) { vm.DeletionTimestamp = &metav1.Time{} }, false},
		"the VM of its name is none": {func(vm *v1.VirtualMachine, _ *v1.VirtualMachineInstance) { vm.UID = "another" }, false},
		"External":                   {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = new(external) }, false},
		"None":                       {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = new(none) }, false},
		"it says nothing":            {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = nil }, false},
		"a network keeps it, too": {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions[0].Reason = v1.VirtualMachineInstanceReasonInterfaceNotMigratable
		}, false},
		"it does not run": {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduled }, false},
		"one can't be moved": {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks[0].CDRom = &v1.CDRomTarget{}
		}, false},
		"they are shared": {func(_ *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo.AccessModes[0] = corev1.ReadWriteMany
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := newScene(always).vmi
			vm := onLocalDisk(vmi)
			if c.edit != nil {
				c.edit(vm, vmi)
			}
			if got := DiskMoves(vm, vmi); len(got) > 0 != c.moves {
				t.Errorf("the moves are %v", got)
			}
		})
	}
	if got := DiskMoves(nil, newScene(always).vmi); got != nil {
		t.Errorf("without a VM the moves are %v", got)
	}
}

func TestWhichVMIsAreMarked(t *testing.T) {
	for name, c := range map[string]struct {
		on, marked string
		want       bool
	}{
		"for its node": {"a", "a", true}, "for another": {"a", "b", false}, "not": {"a", "", false}, "before it has a node": {"", "", false},
	} {
		vmi := newScene(always).vmi
		vmi.Status.NodeName, vmi.Status.EvacuationNodeName = c.on, c.marked
		if Marked(vmi) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// TestAGuestWhoseDisksGoWithItIsWaitedFor: it must be marked, and never stopped because of its disks.
func TestAGuestWhoseDisksGoWithItIsWaitedFor(t *testing.T) {
	for _, strategy := range []v1.EvictionStrategy{always, ifPossible} {
		s := newScene(strategy)
		vm := onLocalDisk(s.vmi)
		const want = `Eviction triggered evacuation of VMI "ns/vm": it is being migrated to another node together with its disks`
		if got := Judge(Eviction{Pod: s.pod, VMI: s.vmi, VM: vm}); got != (Answer{Mark: true, Message: want}) {
			t.Errorf("%s: answered %+v", strategy, got)
		}
		o := Observed{VMI: Mark(s.vmi, true), VM: vm, Node: node(true), Asked: true, Now: noon}
		if got := summary(Decide(o)); got != "waits 20s " {
			t.Errorf("%s: it %q", strategy, got)
		}
		vm.Annotations = nil
		if got := Judge(Eviction{Pod: s.pod, VMI: s.vmi, VM: vm}); !strings.Contains(got.Message, "can't be migrated: PVC data is not shared") {
			t.Errorf("%s: not allowed, it is answered %+v", strategy, got)
		}
	}
}

// TestAnEvictionSaysWhyClaimsCannotBeMade in a bounded answer.
func TestAnEvictionSaysWhyClaimsCannotBeMade(t *testing.T) {
	s := newScene(always)
	vm := onLocalDisk(s.vmi)
	failure := v1.VirtualMachineCondition{Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}
	vm.Status.Conditions = []v1.VirtualMachineCondition{failure}
	const says = "it is to be migrated to another node together with its disks, whose claims can't be made: exceeded quota"
	if got := Judge(Eviction{Pod: s.pod, VMI: s.vmi, VM: vm}); !got.Mark || !strings.HasSuffix(got.Message, says) {
		t.Errorf("answered %+v", got)
	}
	vm.Status.Conditions[0].Message = strings.Repeat("x", 1<<20)
	if got := len(Judge(Eviction{Pod: s.pod, VMI: s.vmi, VM: vm}).Message); got > 2048 {
		t.Errorf("the answer has %d bytes", got)
	}
	vm.Status.Conditions[0].Status = corev1.ConditionFalse
	if got := Judge(Eviction{Pod: s.pod, VMI: s.vmi, VM: vm}); strings.Contains(got.Message, "can't be made") {
		t.Errorf("answered %+v", got)
	}
}

package vmcontroller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/controllerrevision"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// The numbers are those of the table of scenarios of firmware UUIDs.

func TestScenario1AStoppedVMWithoutAUUIDGetsItsLegacyOne(t *testing.T) {
	vm := newVM(v1.RunStrategyHalted)
	vm.Spec.Template.Spec.Domain.Firmware = nil
	p := decide(Observed{VM: vm, Now: now})
	if got := p.VM.Spec.Template.Spec.Domain.Firmware.UUID; got != firmware.Legacy("vm") {
		t.Errorf("the UUID is %s, the legacy one %s", got, firmware.Legacy("vm"))
	}
}

func TestScenario2AVMWithAUUIDKeepsIt(t *testing.T) {
	p := decide(Observed{VM: newVM(v1.RunStrategyHalted), Now: now})
	if got := p.VM.Spec.Template.Spec.Domain.Firmware.UUID; got != uuid {
		t.Errorf("the UUID became %s", got)
	}
}

func TestScenario3ARunningVMWithoutAUUIDGetsItsLegacyOneWithoutRestart(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways)
	vm.Spec.Template.Spec.Domain.Firmware = nil
	started := vm.Spec.Template.Spec.DeepCopy()
	p := decide(Observed{VM: vm, VMI: newTestVMI(running), Started: started, Now: now})
	if got := p.VM.Spec.Template.Spec.Domain.Firmware.UUID; got != firmware.Legacy("vm") {
		t.Errorf("the UUID is %s, the legacy one %s", got, firmware.Legacy("vm"))
	}
	if p.Delete || condition.Find(p.VM.Status.Conditions, v1.VirtualMachineRestartRequired) != nil {
		t.Error("it asks for a restart")
	}
}

func TestRevisionsAreOnePerTemplate(t *testing.T) {
	a, b := newVM(v1.RunStrategyAlways), newVM(v1.RunStrategyHalted)
	b.Generation++
	if RevisionName(a) != RevisionName(b) {
		t.Error("a change of the run strategy makes another revision")
	}
	b.Spec.Template.Spec.Hostname = "other"
	if RevisionName(a) == RevisionName(b) {
		t.Error("a change of the template makes no other revision")
	}
	revision := NewRevision(b)
	spec, err := StartedFrom(revision)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Hostname != "other" {
		t.Errorf("the revision holds %+v", spec)
	}
	revision.Data.Raw = []byte(`{}`)
	if _, err := StartedFrom(revision); err == nil || !strings.Contains(err.Error(), "holds no template") {
		t.Errorf("an empty revision gives %v", err)
	}
}

// The garbage collector removes the VM as owner only from a sorted one.
func TestARevisionIsSorted(t *testing.T) {
	if r := NewRevision(newVM(v1.RunStrategyAlways)); !controllerrevision.Sorted(r) {
		t.Errorf("the revision keeps %s", r.Data.Raw)
	}
}

func TestRevisionsAreReleasedWhenTheVMIsOrphaned(t *testing.T) {
	for name, c := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		"the VM stays":                             {newVM(v1.RunStrategyAlways), newTestVMI(running), false},
		"it goes with all that it has":             {newVM(v1.RunStrategyAlways, deleting()), newTestVMI(running), false},
		"it goes and leaves what it has":           {newVM(v1.RunStrategyAlways, deleting(metav1.FinalizerOrphanDependents)), newTestVMI(running), true},
		"it waits for the garbage collector alone": {newVM(v1.RunStrategyAlways, deleting(metav1.FinalizerOrphanDependents)), nil, true},
	} {
		if got := decide(Observed{VM: c.vm, VMI: c.vmi, Now: now}).ReleaseRevisions; got != c.want {
			t.Errorf("%s: revisions are released: %t", name, got)
		}
	}
}

func TestRestartRequiredNamesTheFieldsAndClearsItself(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways)
	vm.Status.ObservedGeneration = 2
	started := vm.Spec.Template.Spec.DeepCopy()
	vm.Spec.Template.Spec.Hostname = "other"
	changed := decide(Observed{VM: vm, VMI: newTestVMI(running), Started: started, Now: now}).VM
	c := condition.Find(changed.Status.Conditions, v1.VirtualMachineRestartRequired)
	if c == nil || c.Message != "these changes take effect when the VM is restarted: spec.template.spec.hostname, because it can't be changed while the guest runs" {
		t.Fatalf("the condition is %+v", c)
	}
	if changed.Status.ObservedGeneration != 2 || changed.Status.DesiredGeneration != 3 {
		t.Errorf("generations: observed %d, desired %d", changed.Status.ObservedGeneration, changed.Status.DesiredGeneration)
	}
	changed.Spec.Template.Spec.Hostname = ""
	back := decide(Observed{VM: changed, VMI: newTestVMI(running), Started: started, Now: now}).VM
	if c := condition.Find(back.Status.Conditions, v1.VirtualMachineRestartRequired); c != nil {
		t.Errorf("the condition stays: %+v", c)
	}
	if back.Status.ObservedGeneration != 3 {
		t.Errorf("observed generation %d", back.Status.ObservedGeneration)
	}
}

// A live change must not count as part of the VMI's creation.
func TestTheGenerationIsObservedWhenTheVMIIsMadeOfIt(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways)
	vm.Status.ObservedGeneration = 2
	started := vm.Spec.Template.Spec.DeepCopy()
	grace := int64(77)
	vm.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	changed := decide(Observed{VM: vm, VMI: newTestVMI(running), Started: started, Now: now}).VM
	if changed.Status.ObservedGeneration != 2 || changed.Status.DesiredGeneration != 3 {
		t.Errorf("with another template: observed %d, desired %d", changed.Status.ObservedGeneration, changed.Status.DesiredGeneration)
	}
	off := decide(Observed{VM: vm, Now: now}).VM
	if off.Status.ObservedGeneration != 3 {
		t.Errorf("without a VMI: observed %d", off.Status.ObservedGeneration)
	}
}

// Labels and annotations reach no VMI after its creation. An instance type changes the spec that a VMI is made of, not
// the VM's own.
func TestTheGenerationIsObservedWithLabelsAnnotationsAndTheType(t *testing.T) {
	typed := &instancetype.Source{Kind: instancetype.KindType, Name: "three", Type: &instancetypev1.VirtualMachineInstancetypeSpec{
		CPU: instancetypev1.CPUInstancetype{Guest: 3}, Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse("64Mi")},
		Annotations: map[string]string{"of": "the type"},
	}}
	withType := func(vm *v1.VirtualMachine) {
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Kind: instancetype.KindType, Name: "three"}
	}
	labels := func(labels map[string]string) vmEdit {
		return func(vm *v1.VirtualMachine) { vm.Spec.Template.ObjectMeta.Labels = labels }
	}
	for name, test := range map[string]struct {
		created, changed vmEdit
		observed         int64
	}{
		"nothing":                   {labels(map[string]string{"a": "b"}), func(*v1.VirtualMachine) {}, 3},
		"nothing, with a type":      {withType, func(*v1.VirtualMachine) {}, 3},
		"a label":                   {withType, labels(map[string]string{"a": "b"}), 2},
		"another value":             {labels(map[string]string{"a": "b"}), labels(map[string]string{"a": "c"}), 2},
		"an annotation":             {withType, func(vm *v1.VirtualMachine) { vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "b"} }, 2},
		"the spec, beside the type": {withType, func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(77)) }, 2},
	} {
		before := newVM(v1.RunStrategyAlways, test.created)
		o := Observed{VM: before, Now: now}
		if before.Spec.Instancetype != nil {
			o.Type = &Referred{Source: typed}
		}
		vmi := decide(o).Create
		vmi.UID, vmi.Status.Phase = "vmi-uid", v1.Running
		o.Started = o.Expanded().Spec.Template.Spec.DeepCopy()
		o.VM, o.VMI = before.DeepCopy(), vmi
		test.changed(o.VM)
		o.VM.Status.ObservedGeneration = 2
		if status := decide(o).VM.Status; status.ObservedGeneration != test.observed || status.DesiredGeneration != 3 {
			t.Errorf("%s: observed %d, desired %d", name, status.ObservedGeneration, status.DesiredGeneration)
		}
	}
}

func TestOnlyAGuestThatRunsHasToBeRestarted(t *testing.T) {
	started := newVM(v1.RunStrategyManual).Spec.Template.Spec.DeepCopy()
	other := func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" }
	for name, test := range map[string]struct {
		vm      *v1.VirtualMachine
		vmi     *v1.VirtualMachineInstance
		started *v1.VirtualMachineInstanceSpec
		want    bool
	}{
		"a guest that runs on an older template": {newVM(v1.RunStrategyManual, other), newTestVMI(running), started, true},
		"a guest that starts on one":             {newVM(v1.RunStrategyManual, other), newTestVMI(starting), started, true},
		"a guest that runs on this one":          {newVM(v1.RunStrategyManual), newTestVMI(running), started, false},
		"a guest that has ended":                 {newVM(v1.RunStrategyManual, other), newTestVMI(succeeded), started, false},
		"no guest":                               {newVM(v1.RunStrategyManual, other), nil, started, false},
		"a guest whose template is not known":    {newVM(v1.RunStrategyManual, other), newTestVMI(running), nil, false},
	} {
		vm := decide(Observed{VM: test.vm, VMI: test.vmi, Started: test.started, Now: now}).VM
		if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired); (c != nil) != test.want {
			t.Errorf("%s: RestartRequired is %+v", name, c)
		}
	}
}

func onNode(zone string) vmEdit {
	return func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.NodeSelector = map[string]string{"zone": zone} }
}

func TestWhatOfATemplateReachesTheVMI(t *testing.T) {
	const fixed = "these changes take effect when the VM is restarted: spec.template.spec.hostname, because it can't be changed while the guest runs"
	const staged = fixed + "; spec.template.spec.nodeSelector, because "
	started := newVM(v1.RunStrategyAlways).Spec.Template.Spec.DeepCopy()
	other := func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" }
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		vmi      *v1.VirtualMachineInstance
		// synced means that the VMI gets the template's node selector; says is the condition's message.
		synced bool
		says   string
	}{
		"LiveUpdate":                        {v1.VMRolloutStrategyLiveUpdate, newTestVMI(running), true, fixed},
		"Stage":                             {v1.VMRolloutStrategyStage, newTestVMI(running), false, staged + "the KubeVirt object's vmRolloutStrategy is Stage"},
		"LiveUpdate while a migration runs": {v1.VMRolloutStrategyLiveUpdate, newTestVMI(running, inFlight), false, fixed},
		"LiveUpdate of a guest that starts": {v1.VMRolloutStrategyLiveUpdate, newTestVMI(starting), false,
			staged + "the launcher pod has been made without it, and the guest does not run yet"},
		"LiveUpdate of a VMI that goes": {v1.VMRolloutStrategyLiveUpdate, newTestVMI(running, vmiDeleting), false, fixed},
		"a guest that has ended":        {v1.VMRolloutStrategyStage, newTestVMI(succeeded), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(Observed{VM: newVM(v1.RunStrategyManual, other, onNode("a")), VMI: test.vmi, Started: started, Strategy: test.strategy, Now: now})
			if synced := p.Sync != nil && p.Sync.Spec.NodeSelector["zone"] == "a"; synced != test.synced {
				t.Errorf("the VMI follows: %v, want %v", synced, test.synced)
			}
			said := ""
			if c := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineRestartRequired); c != nil {
				said = c.Message
			}
			if said != test.says {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}

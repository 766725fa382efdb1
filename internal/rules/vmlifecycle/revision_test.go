package vmlifecycle

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/firmware"
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

func TestChangesNameTheFields(t *testing.T) {
	base := func() *v1.VirtualMachineInstanceSpec {
		memory := resource.MustParse("1Gi")
		return &v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{
				CPU:    &v1.CPU{Cores: 1},
				Memory: &v1.Memory{Guest: &memory},
				Devices: v1.Devices{Disks: []v1.Disk{
					{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
					{Name: "data"},
				}},
			},
			Tolerations: []corev1.Toleration{{Key: "a"}},
		}
	}
	tests := map[string]struct {
		edit func(*v1.VirtualMachineInstanceSpec)
		want []string
	}{
		"nothing": {func(*v1.VirtualMachineInstanceSpec) {}, nil},
		"a value": {func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Cores = 2 },
			[]string{"spec.template.spec.domain.cpu.cores"}},
		"the same quantity in other words is no change": {func(s *v1.VirtualMachineInstanceSpec) {
			same := resource.MustParse("1024Mi")
			s.Domain.Memory.Guest = &same
		}, nil},
		"a field of a disk, by the disk's name": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[0].Disk.Bus = v1.DiskBusSATA
		}, []string{"spec.template.spec.domain.devices.disks[root].disk.bus"}},
		"a disk more, and one less": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[1].Name = "more"
		}, []string{"spec.template.spec.domain.devices.disks[data]", "spec.template.spec.domain.devices.disks[more]"}},
		"another order of disks": {func(s *v1.VirtualMachineInstanceSpec) {
			slices.Reverse(s.Domain.Devices.Disks)
		}, []string{"spec.template.spec.domain.devices.disks"}},
		"an element without a name, by its place": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Tolerations[0].Key = "b"
		}, []string{"spec.template.spec.tolerations[0].key"}},
		"a part that was not there": {func(s *v1.VirtualMachineInstanceSpec) {
			s.NodeSelector = map[string]string{"zone": "a"}
		}, []string{"spec.template.spec.nodeSelector"}},
		"the UUID that it counts as having is no change": {func(s *v1.VirtualMachineInstanceSpec) {
			firmware.Set(s, firmware.Legacy("vm"))
		}, nil},
		"another UUID is one": {func(s *v1.VirtualMachineInstanceSpec) { firmware.Set(s, uuid) },
			[]string{"spec.template.spec.domain.firmware.uuid"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			to := base()
			test.edit(to)
			if got := Changes(base(), to, "vm"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRestartRequiredNamesTheFieldsAndClearsItself(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways)
	vm.Status.ObservedGeneration = 2
	started := vm.Spec.Template.Spec.DeepCopy()
	vm.Spec.Template.Spec.Hostname = "other"
	changed := decide(Observed{VM: vm, VMI: newTestVMI(running), Started: started, Now: now}).VM
	c := condition.Find(changed.Status.Conditions, v1.VirtualMachineRestartRequired)
	if c == nil || c.Message != "these changes take effect when the VM is restarted: spec.template.spec.hostname" {
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

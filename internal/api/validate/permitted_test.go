package validate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// configured returns the settings from a KubeVirt object with that configuration.
func configured(t *testing.T, configuration, machineTypes string) clusterconfig.Settings {
	t.Helper()
	kv := &v1.KubeVirt{}
	kv.Annotations = map[string]string{clusterconfig.MachineTypesAnnotation: machineTypes}
	if err := yaml.UnmarshalStrict([]byte(configuration), &kv.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	if errs := KubeVirt(ofUsualName(kv), nil); len(errs) > 0 {
		t.Fatalf("the configuration is refused: %v", errs)
	}
	return clusterconfig.FromKubeVirt(kv)
}

func ofUsualName(kv *v1.KubeVirt) *v1.KubeVirt {
	kv = kv.DeepCopy()
	kv.Namespace, kv.Name = clusterconfig.Namespace, clusterconfig.Name
	return kv
}

// An administrator's settings must be the same for a VM and for its VMI: an admitted VM must start.
func TestWhatAnAdministratorPermits(t *testing.T) {
	const machineAt = "spec.domain.machine.type: "
	for name, test := range map[string]struct {
		configuration, types string
		spec                 string
		want                 []string
		machine              string
	}{
		"QEMU's own machine": {spec: `{machine: {type: pc-q35-6.0}}`, machine: "pc-q35-6.0"},
		"another build's":    {spec: `{machine: {type: pc-q35-rhel8.6.0}}`, machine: "pc-q35-7.2"},
		"another build's, by the map": {
			types: "pc-q35-rhel8*=pc-q35-6.2", spec: `{machine: {type: pc-q35-rhel8.6.0}}`, machine: "pc-q35-6.2",
		},
		"of another kind": {
			spec: `{machine: {type: pc-i440fx-7.2}}`,
			want: []string{machineAt + `Invalid value: "pc-i440fx-7.2": must be q35 or one of its versions, such as pc-q35-10.0`},
		},
		"a machine that is not allowed": {
			configuration: `architectureConfiguration: {amd64: {emulatedMachines: ["pc-q35-7*", "pc-q35-rhel*"]}}`, spec: `{machine: {type: pc-q35-6.2}}`,
			want: []string{machineAt + `Invalid value: "pc-q35-6.2": the KubeVirt object's emulatedMachines allow pc-q35-7*, pc-q35-rhel*`},
		},
		"what an allowed one stands for": {
			configuration: `emulatedMachines: ["pc-q35-rhel*"]`, types: "pc-q35-rhel8*=pc-q35-6.2",
			spec: `{machine: {type: pc-q35-rhel8.6.0}}`, machine: "pc-q35-6.2",
		},
		"the default, whatever is allowed": {
			configuration: `{emulatedMachines: [q35], machineType: pc-q35-7.1}`, spec: `{}`, machine: "pc-q35-7.1",
		},
		"a device that is permitted": {
			configuration: "permittedHostDevices: {pciHostDevices: [{pciVendorSelector: '10de:1eb8', resourceName: example.com/card}]}",
			spec:          `{devices: {gpus: [{name: g, deviceName: example.com/card}]}}`, machine: "pc-q35-10.0",
		},
		"a bridge that is not permitted": {
			configuration: `network: {permitBridgeInterfaceOnPodNetwork: false, defaultNetworkInterface: bridge}`, spec: `{}`,
			want: []string{"spec.domain.devices.interfaces[0].bridge: bridge on the pods' network is not enabled: use masquerade, or an administrator sets " +
				"spec.configuration.network.permitBridgeInterfaceOnPodNetwork of the KubeVirt object"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := configured(t, test.configuration, test.types)
			vm := &v1.VirtualMachine{}
			vm.Spec.RunStrategy, vm.Spec.Template = new(v1.RunStrategyAlways), &v1.VirtualMachineInstanceTemplateSpec{}
			if err := yaml.UnmarshalStrict([]byte(test.spec), &vm.Spec.Template.Spec.Domain); err != nil {
				t.Fatal(err)
			}
			vm.Spec.Template.Spec.Domain.Memory = parse[v1.Memory](t, "guest: 64Mi")
			asked := vm.Spec.Template.Spec.Domain.DeepCopy()
			defaults.VM(vm, nil, settings)
			var got []string
			for _, err := range VM(vm, nil, settings) {
				got = append(got, "spec"+err.Field[len("spec.template.spec"):]+": "+admission.Sentence(err))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
			if is := vm.Spec.Template.Spec.Domain.Machine; asked.Machine != nil && is.Type != asked.Machine.Type {
				t.Errorf("the VM's machine became %s", is.Type)
			}
			if len(test.want) > 0 {
				return
			}
			vmi := &v1.VirtualMachineInstance{Spec: vm.Spec.Template.Spec}
			defaults.VMI(vmi, settings)
			if errs := VMI(vmi, settings); len(errs) > 0 {
				t.Errorf("its VMI is refused: %v", errs)
			}
			if got := vmi.Spec.Domain.Machine.Type; got != test.machine {
				t.Errorf("the guest's machine is %s, want %s", got, test.machine)
			}
		})
	}
}

func TestWhoWritesAVMIsToldWhatTheGuestWillSee(t *testing.T) {
	vmi := parse[v1.VirtualMachineInstance](t, `
spec:
  domain:
    machine: {type: pc-q35-rhel9.4.0}
    memory: {guest: 1Gi}
    devices:
      disks:
      - {name: a, serial: A123456789012345678901234567}
      - {name: b, serial: A123456789012345678901234567, disk: {bus: scsi}}
  volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
`)
	want := []string{
		"spec.domain.machine.type: QEMU has no machine type pc-q35-rhel9.4.0; the guest runs as pc-q35-7.2, which an administrator can change " +
			"by the annotation drydock.dev/machine-types of the KubeVirt object",
		"spec.domain.devices.disks[0].serial: the bus sata carries 20 characters, so the guest sees A1234567890123456789",
	}
	settings := configured(t, "", "")
	if diff := cmp.Diff(want, VMIWarnings(vmi, nil, settings)); diff != "" {
		t.Error(diff)
	}
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: vmi.Spec}}}
	if got := VMWarnings(vm, nil, settings); len(got) != len(want) {
		t.Errorf("of a VM with that template is told %q", got)
	}
	if got := VMWarnings(vm, vm, settings); len(got) > 0 {
		t.Errorf("who changes nothing is told %q", got)
	}
}

// This is kubectl apply of the same manifest once more.
func TestAVMIOfAnotherBuildsMachineMayBeWrittenAgain(t *testing.T) {
	sent := parse[v1.VirtualMachineInstance](t, "spec: {domain: {machine: {type: pc-q35-rhel9.4.0}, memory: {guest: 64Mi}, devices: {}}}")
	stored := sent.DeepCopy()
	defaults.VMI(stored, configured(t, "", "pc-q35-rhel9*=pc-q35-6.2"))
	again := sent.DeepCopy()
	defaults.VMIUpdate(again, stored, configured(t, "", ""))
	if errs := VMIUpdate(again, stored); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
}

// As with KubeVirt, a VM may be made before an administrator permits its devices.
func TestADeviceThatIsNotPermittedYetIsToldAndTaken(t *testing.T) {
	vmi := parse[v1.VirtualMachineInstance](t, `
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {gpus: [{name: g, deviceName: example.com/card}], hostDevices: [{name: nic, deviceName: example.com/nic}]}
`)
	settings := configured(t, "permittedHostDevices: {pciHostDevices: [{pciVendorSelector: '8086:1521', resourceName: example.com/nic}]}", "")
	warnings := func(at string) []string {
		return []string{at + ".domain.devices.gpus[0].deviceName: GPU example.com/card is not permitted in permittedHostDevices configuration of the KubeVirt object, " +
			"which permits example.com/nic in pciHostDevices; the VM waits until it does"}
	}
	if diff := cmp.Diff(warnings("spec"), VMIWarnings(vmi, nil, settings)); diff != "" {
		t.Error(diff)
	}
	defaults.VMI(vmi, settings)
	if errs := VMI(vmi, settings); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
	typed := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Instancetype: &v1.InstancetypeMatcher{Name: "gpu"}, Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
	expanded := typed.DeepCopy()
	expanded.Spec.Template.Spec = vmi.Spec
	if diff := cmp.Diff(warnings("spec.template.spec"), ExpandedVMWarnings(typed, expanded, settings)); diff != "" {
		t.Errorf("of its instance type: %s", diff)
	}
	if got := ExpandedVMWarnings(expanded, expanded, settings); len(got) > 0 {
		t.Errorf("what the VM says itself is told twice: %q", got)
	}
}

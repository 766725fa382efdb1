package instancetype

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"
)

// Each field of a preference, by its path, with a VM that does not set the field (vm, "" for a plain one), the result,
// and, where a VM can set it, one that does (says), which must stay unchanged.
var preferenceTable = map[string]struct {
	preference, vm, want, says string
}{
	"clock.preferredClockOffset": {preference: `{timezone: CET}`, want: `{domain: {clock: {timezone: CET}}}`, says: `{domain: {clock: {utc: {}}}}`},
	"clock.preferredTimer":       {preference: `{hpet: {present: false}}`, want: `{domain: {clock: {timer: {hpet: {present: false}}}}}`, says: `{domain: {clock: {timer: {pit: {}}}}}`},
	"cpu.preferredCPUFeatures": {preference: `[{name: vmx, policy: require}]`, vm: `{domain: {cpu: {features: [{name: svm}]}}}`,
		want: `{domain: {cpu: {features: [{name: svm}, {name: vmx, policy: require}]}}}`, says: `{domain: {cpu: {features: [{name: vmx, policy: disable}]}}}`},
	"devices.preferredAutoattachGraphicsDevice": {preference: `false`, want: `{domain: {devices: {autoattachGraphicsDevice: false}}}`, says: `{domain: {devices: {autoattachGraphicsDevice: true}}}`},
	"devices.preferredAutoattachMemBalloon":     {preference: `false`, want: `{domain: {devices: {autoattachMemBalloon: false}}}`, says: `{domain: {devices: {autoattachMemBalloon: true}}}`},
	"devices.preferredAutoattachPodInterface":   {preference: `false`, want: `{domain: {devices: {autoattachPodInterface: false}}}`, says: `{domain: {devices: {autoattachPodInterface: true}}}`},
	"devices.preferredAutoattachSerialConsole":  {preference: `false`, want: `{domain: {devices: {autoattachSerialConsole: false}}}`, says: `{domain: {devices: {autoattachSerialConsole: true}}}`},
	"devices.preferredAutoattachInputDevice": {preference: `true`, want: `{domain: {devices: {autoattachInputDevice: true, inputs: [{name: default-0, type: "", bus: ""}]}}}`,
		says: `{domain: {devices: {autoattachInputDevice: false}}}`},
	"devices.preferredDisableHotplug":        {preference: `true`, want: `{domain: {devices: {disableHotplug: true}}}`},
	"devices.preferredUseVirtioTransitional": {preference: `true`, want: `{domain: {devices: {useVirtioTransitional: true}}}`, says: `{domain: {devices: {useVirtioTransitional: false}}}`},
	"devices.preferredVirtualGPUOptions": {preference: `{display: {enabled: true}}`, vm: `{domain: {devices: {gpus: [{name: a, deviceName: x}]}}}`,
		want: `{domain: {devices: {gpus: [{name: a, deviceName: x, virtualGPUOptions: {display: {enabled: true}}}]}}}`, says: `{domain: {devices: {gpus: [{name: a, deviceName: x, virtualGPUOptions: {}}]}}}`},
	"devices.preferredSoundModel": {preference: `ac97`, vm: `{domain: {devices: {sound: {name: a}}}}`, want: `{domain: {devices: {sound: {name: a, model: ac97}}}}`,
		says: `{domain: {devices: {sound: {name: a, model: ich9}}}}`},
	"devices.preferredInputBus": {preference: `virtio`, vm: `{domain: {devices: {inputs: [{name: a, type: tablet}]}}}`, want: `{domain: {devices: {inputs: [{name: a, type: tablet, bus: virtio}]}}}`,
		says: `{domain: {devices: {inputs: [{name: a, type: tablet, bus: usb}]}}}`},
	"devices.preferredInputType": {preference: `tablet`, vm: `{domain: {devices: {inputs: [{name: a, bus: usb}]}}}`, want: `{domain: {devices: {inputs: [{name: a, type: tablet, bus: usb}]}}}`,
		says: `{domain: {devices: {inputs: [{name: a, type: keyboard, bus: usb}]}}}`},
	"devices.preferredDiskBus": {preference: `virtio`, vm: `{volumes: [{name: a, containerDisk: {image: i}}]}`,
		want: `{volumes: [{name: a, containerDisk: {image: i}}], domain: {devices: {disks: [{name: a, disk: {bus: virtio}}]}}}`, says: `{domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}}`},
	"devices.preferredLunBus": {preference: `scsi`, vm: `{domain: {devices: {disks: [{name: a, lun: {}}]}}}`, want: `{domain: {devices: {disks: [{name: a, lun: {bus: scsi}}]}}}`,
		says: `{domain: {devices: {disks: [{name: a, lun: {bus: virtio}}]}}}`},
	"devices.preferredCdromBus": {preference: `scsi`, vm: `{domain: {devices: {disks: [{name: a, cdrom: {}}]}}}`, want: `{domain: {devices: {disks: [{name: a, cdrom: {bus: scsi}}]}}}`,
		says: `{domain: {devices: {disks: [{name: a, cdrom: {bus: sata}}]}}}`},
	"devices.preferredDiskDedicatedIoThread": {preference: `true`, vm: `{domain: {devices: {disks: [{name: a, disk: {bus: virtio}}, {name: b, disk: {bus: sata}}]}}}`,
		want: `{domain: {devices: {disks: [{name: a, disk: {bus: virtio}, dedicatedIOThread: true}, {name: b, disk: {bus: sata}}]}}}`,
		says: `{domain: {devices: {disks: [{name: a, disk: {bus: virtio}, dedicatedIOThread: false}]}}}`},
	"devices.preferredDiskCache": {preference: `none`, vm: `{domain: {devices: {disks: [{name: a, disk: {}}, {name: b, cdrom: {}}]}}}`,
		want: `{domain: {devices: {disks: [{name: a, disk: {}, cache: none}, {name: b, cdrom: {}}]}}}`, says: `{domain: {devices: {disks: [{name: a, disk: {}, cache: writeback}]}}}`},
	"devices.preferredDiskIO": {preference: `native`, vm: `{domain: {devices: {disks: [{name: a, disk: {}}]}}}`, want: `{domain: {devices: {disks: [{name: a, disk: {}, io: native}]}}}`,
		says: `{domain: {devices: {disks: [{name: a, disk: {}, io: threads}]}}}`},
	"devices.preferredDiskBlockSize": {preference: `{matchVolume: {}}`, vm: `{domain: {devices: {disks: [{name: a, disk: {}}]}}}`,
		want: `{domain: {devices: {disks: [{name: a, disk: {}, blockSize: {matchVolume: {}}}]}}}`, says: `{domain: {devices: {disks: [{name: a, disk: {}, blockSize: {custom: {logical: 512, physical: 512}}}]}}}`},
	"devices.preferredInterfaceModel": {preference: `virtio`, vm: `{networks: [{name: default, pod: {}}], domain: {devices: {interfaces: [{name: default, bridge: {}}, {name: b, sriov: {}}]}}}`,
		want: `{networks: [{name: default, pod: {}}], domain: {devices: {interfaces: [{name: default, bridge: {}, model: virtio}, {name: b, sriov: {}}]}}}`,
		says: `{networks: [{name: default, pod: {}}], domain: {devices: {interfaces: [{name: default, bridge: {}, model: e1000}]}}}`},
	"devices.preferredRng":                        {preference: `{}`, want: `{domain: {devices: {rng: {}}}}`},
	"devices.preferredBlockMultiQueue":            {preference: `true`, want: `{domain: {devices: {blockMultiQueue: true}}}`, says: `{domain: {devices: {blockMultiQueue: false}}}`},
	"devices.preferredNetworkInterfaceMultiQueue": {preference: `true`, want: `{domain: {devices: {networkInterfaceMultiqueue: true}}}`, says: `{domain: {devices: {networkInterfaceMultiqueue: false}}}`},
	"devices.preferredTPM":                        {preference: `{persistent: true}`, want: `{domain: {devices: {tpm: {persistent: true}}}}`, says: `{domain: {devices: {tpm: {enabled: false}}}}`},
	"devices.preferredInterfaceMasquerade": {preference: `{}`, vm: `{networks: [{name: default, pod: {}}, {name: blue, multus: {networkName: x}}], domain: {devices: {interfaces: [{name: default}, {name: blue}]}}}`,
		want: `{networks: [{name: default, pod: {}}, {name: blue, multus: {networkName: x}}], domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: blue}]}}}`,
		says: `{networks: [{name: default, pod: {}}], domain: {devices: {interfaces: [{name: default, bridge: {}}]}}}`},
	"devices.preferredPanicDeviceModel": {preference: `isa`, vm: `{domain: {devices: {panicDevices: [{}]}}}`, want: `{domain: {devices: {panicDevices: [{model: isa}]}}}`,
		says: `{domain: {devices: {panicDevices: [{model: hyperv}]}}}`},
	"devices.preferredVideoType":   {preference: `vga`, want: `{domain: {devices: {video: {type: vga}}}}`, says: `{domain: {devices: {video: {type: virtio}}}}`},
	"features.preferredAcpi":       {preference: `{enabled: false}`, want: `{domain: {features: {acpi: {enabled: false}}}}`, says: `{domain: {features: {acpi: {enabled: true}}}}`},
	"features.preferredApic":       {preference: `{endOfInterrupt: true}`, want: `{domain: {features: {acpi: {}, apic: {endOfInterrupt: true}}}}`, says: `{domain: {features: {apic: {}}}}`},
	"features.preferredKvm":        {preference: `{hidden: true}`, want: `{domain: {features: {acpi: {}, kvm: {hidden: true}}}}`, says: `{domain: {features: {kvm: {}}}}`},
	"features.preferredPvspinlock": {preference: `{enabled: false}`, want: `{domain: {features: {acpi: {}, pvspinlock: {enabled: false}}}}`, says: `{domain: {features: {pvspinlock: {}}}}`},
	"features.preferredSmm":        {preference: `{}`, want: `{domain: {features: {acpi: {}, smm: {}}}}`, says: `{domain: {features: {smm: {enabled: false}}}}`},
	"features.preferredHyperv": {preference: `{relaxed: {}, vapic: {}}`, vm: `{domain: {features: {hyperv: {relaxed: {enabled: false}}}}}`,
		want: `{domain: {features: {hyperv: {relaxed: {enabled: false}, vapic: {}}}}}`, says: `{domain: {features: {hypervPassthrough: {enabled: true}}}}`},
	"firmware.preferredUseBios": {preference: `true`, want: `{domain: {firmware: {bootloader: {bios: {}}}}}`, says: `{domain: {firmware: {bootloader: {efi: {}}}}}`},
	"firmware.preferredUseBiosSerial": {preference: `true`, vm: `{domain: {firmware: {bootloader: {bios: {}}}}}`, want: `{domain: {firmware: {bootloader: {bios: {useSerial: true}}}}}`,
		says: `{domain: {firmware: {bootloader: {bios: {useSerial: false}}}}}`},
	"firmware.preferredUseEfi": {preference: `true`, want: `{domain: {firmware: {bootloader: {efi: {}}}}}`, says: `{domain: {firmware: {bootloader: {bios: {}}}}}`},
	"firmware.preferredUseSecureBoot": {preference: `false`, vm: `{domain: {firmware: {bootloader: {efi: {}}}}}`, want: `{domain: {firmware: {bootloader: {efi: {secureBoot: false}}}}}`,
		says: `{domain: {firmware: {bootloader: {efi: {secureBoot: true}}}}}`},
	"firmware.preferredEfi":                  {preference: `{persistent: true}`, want: `{domain: {firmware: {bootloader: {efi: {persistent: true}}}}}`, says: `{domain: {firmware: {bootloader: {efi: {}}}}}`},
	"machine.preferredMachineType":           {preference: `q35`, want: `{domain: {machine: {type: q35}}}`, says: `{domain: {machine: {type: pc-q35-10.0}}}`},
	"preferredSubdomain":                     {preference: `fleet`, want: `{subdomain: fleet}`, says: `{subdomain: mine}`},
	"preferredTerminationGracePeriodSeconds": {preference: `7`, want: `{terminationGracePeriodSeconds: 7}`, says: `{terminationGracePeriodSeconds: 0}`},
	"preferredArchitecture":                  {preference: `arm64`, want: `{architecture: arm64}`, says: `{architecture: amd64}`},
	"preferredLaunchSecurity":                {preference: `{sev: {}}`, want: `{domain: {launchSecurity: {sev: {}}}}`, says: `{domain: {launchSecurity: {snp: {}}}}`},
}

// Fields with tests of their own: they affect more than the spec of a VMI.
var testedElsewhere = []string{
	"annotations", "volumes.preferredStorageClassName", "requirements.cpu", "requirements.memory", "requirements.architecture",
	"cpu.preferredCPUTopology", "cpu.spreadOptions", "preferSpreadSocketToCoreRatio",
}

// A new field of the API module has no line, and must fail here.
func TestEveryPreferenceIsTested(t *testing.T) {
	var paths []string
	var visit func(reflect.Type, string)
	visit = func(typ reflect.Type, at string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			group := strings.HasSuffix(inner.Name(), "Preferences") || inner.Name() == "PreferenceRequirements"
			if group && inner.PkgPath() == reflect.TypeFor[instancetypev1.VirtualMachinePreferenceSpec]().PkgPath() {
				visit(inner, at+name+".")
				continue
			}
			paths = append(paths, at+name)
		}
	}
	visit(reflect.TypeFor[instancetypev1.VirtualMachinePreferenceSpec](), "")
	for _, path := range paths {
		if _, listed := preferenceTable[path]; !listed && !slices.Contains(testedElsewhere, path) {
			t.Errorf("nothing is tested of the preference %s", path)
		}
	}
	for path := range preferenceTable {
		if !slices.Contains(paths, path) {
			t.Errorf("the table has %s, which the API does not have", path)
		}
	}
}

func TestAPreferenceFillsInWhatTheVMDoesNotSay(t *testing.T) {
	for path, c := range preferenceTable {
		t.Run(path, func(t *testing.T) {
			text := c.preference
			parts := strings.Split(path, ".")
			for i := len(parts) - 1; i >= 0; i-- {
				text = "{" + parts[i] + ": " + text + "}"
			}
			preference := &Source{Kind: KindPreference, Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, text)}
			expand := func(spec string) *v1.VirtualMachineInstanceSpec {
				out, errs := Expand(vmOf(t, spec), Used{Preference: preference}, "masquerade")
				if len(errs) > 0 {
					t.Fatal(errs)
				}
				return &out.Spec.Template.Spec
			}
			got := expand(orEmpty(c.vm))
			want := parse[v1.VirtualMachineInstanceSpec](t, c.want)
			if !strings.Contains(c.want, "networks") {
				// Preferences of devices also affect the pod's network.
				got.Networks, got.Domain.Devices.Interfaces = nil, nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if c.says == "" {
				return
			}
			said := parse[v1.VirtualMachineInstanceSpec](t, c.says)
			kept := expand(c.says)
			if !strings.Contains(c.says, "networks") {
				kept.Networks, kept.Domain.Devices.Interfaces = nil, nil
			}
			if diff := cmp.Diff(said, kept); diff != "" {
				t.Errorf("what the VM says does not stay: -want +got:\n%s", diff)
			}
		})
	}
}

// A VM that lists no network and no disk gets default ones, and the preference must apply to them.
func TestAPreferenceIsAboutDevicesThatAreImplied(t *testing.T) {
	preference := &Source{Kind: KindPreference, Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t,
		`{devices: {preferredInterfaceModel: e1000e, preferredInputType: tablet, preferredInputBus: virtio}}`)}
	for binding, want := range map[string]v1.Interface{
		"masquerade": {Name: "default", Model: "e1000e", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}},
		"bridge":     {Name: "default", Model: "e1000e", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}},
	} {
		out, errs := Expand(vmOf(t, `{domain: {devices: {autoattachInputDevice: true}}}`), Used{Preference: preference}, binding)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		devices := out.Spec.Template.Spec.Domain.Devices
		if diff := cmp.Diff([]v1.Interface{want}, devices.Interfaces); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]v1.Input{{Name: "default-0", Type: "tablet", Bus: "virtio"}}, devices.Inputs); diff != "" {
			t.Error(diff)
		}
	}
}

// A disk can be plugged on two buses only, whatever the preference.
func TestAPluggableDiskGetsNoBusOnWhichItCantBePlugged(t *testing.T) {
	for bus, want := range map[string]v1.DiskBus{"sata": "", "virtio": "virtio"} {
		preference := &Source{Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, `{devices: {preferredDiskBus: `+bus+`}}`)}
		out, errs := Expand(vmOf(t, `{volumes: [{name: a, dataVolume: {name: a, hotpluggable: true}}]}`), Used{Preference: preference}, "")
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := out.Spec.Template.Spec.Domain.Devices.Disks[0].Disk.Bus; got != want {
			t.Errorf("preferred %s: the bus is %q, want %q", bus, got, want)
		}
	}
}

// SATA has no read-only disk, which the disk with host figures must be.
func TestADiskOfFiguresGetsNoBusOnWhichItCantBeRead(t *testing.T) {
	for bus, want := range map[string]v1.DiskBus{"sata": "", "virtio": "virtio", "usb": "usb"} {
		preference := &Source{Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, `{devices: {preferredDiskBus: `+bus+`}}`)}
		out, errs := Expand(vmOf(t, `{volumes: [{name: a, downwardMetrics: {}}]}`), Used{Preference: preference}, "")
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := out.Spec.Template.Spec.Domain.Devices.Disks[0].Disk.Bus; got != want {
			t.Errorf("preferred %s: the bus is %q, want %q", bus, got, want)
		}
	}
}

func TestAPreferenceOfAnnotationsAndStorage(t *testing.T) {
	preference := &Source{Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t,
		`{annotations: {a: preferred, b: preferred}, volumes: {preferredStorageClassName: fast}}`)}
	vm := parse[v1.VirtualMachine](t, `{spec: {template: {metadata: {annotations: {a: mine}}, spec: {domain: {}}}, dataVolumeTemplates: [
		{spec: {storage: {}}}, {spec: {pvc: {resources: {}}}}, {spec: {storage: {storageClassName: mine}}}, {spec: {pvc: {storageClassName: ""}}}]}}`)
	out, errs := Expand(vm, Used{Preference: preference}, "")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(map[string]string{"a": "mine", "b": "preferred"}, out.Spec.Template.ObjectMeta.Annotations); diff != "" {
		t.Error(diff)
	}
	var classes []string
	for _, dv := range out.Spec.DataVolumeTemplates {
		if dv.Spec.Storage != nil {
			classes = append(classes, value(dv.Spec.Storage.StorageClassName))
		} else {
			classes = append(classes, value(dv.Spec.PVC.StorageClassName))
		}
	}
	if diff := cmp.Diff([]string{"fast", "fast", "mine", ""}, classes); diff != "" {
		t.Error(diff)
	}
	if vm.Spec.DataVolumeTemplates[0].Spec.Storage.StorageClassName != nil {
		t.Error("the VM itself was changed")
	}
}

func TestAPreferenceThatRequiresMore(t *testing.T) {
	small := `{cpu: {guest: 2}, memory: {guest: 1Gi}}`
	for name, c := range map[string]struct{ requires, typ, vm, want string }{
		"enough":                   {`{cpu: {guest: 2}, memory: {guest: 1Gi}}`, small, `{domain: {}}`, ""},
		"more CPUs":                {`{cpu: {guest: 3}}`, small, `{domain: {}}`, "spec.instancetype: Forbidden: failure checking preference requirements: insufficient CPU resources: the instance type t (VirtualMachineInstancetype) has 2 vCPUs, and the preference p (VirtualMachinePreference) requires at least 3"},
		"more memory":              {`{memory: {guest: 2Gi}}`, small, `{domain: {}}`, "spec.instancetype: Forbidden: failure checking preference requirements: insufficient Memory resources: the instance type t (VirtualMachineInstancetype) has 1Gi of memory, and the preference p (VirtualMachinePreference) requires at least 2Gi"},
		"of the VM":                {`{cpu: {guest: 4}, memory: {guest: 1Gi}}`, "", `{domain: {cpu: {cores: 2, threads: 2}, memory: {guest: 1Gi}}}`, ""},
		"more CPUs of the VM":      {`{cpu: {guest: 4}}`, "", `{domain: {cpu: {cores: 3}}}`, "spec.template.spec.domain.cpu: Forbidden: failure checking preference requirements: insufficient CPU resources: the VM has 3 vCPUs, and the preference p (VirtualMachinePreference) requires at least 4"},
		"memory of a VM with none": {`{memory: {guest: 1Gi}}`, "", `{domain: {}}`, "spec.template.spec.domain.memory.guest: Forbidden: failure checking preference requirements: insufficient Memory resources: the VM has 0 of memory, and the preference p (VirtualMachinePreference) requires at least 1Gi"},
		"another architecture":     {`{architecture: arm64}`, small, `{domain: {}}`, "spec.preference: Forbidden: failure checking preference requirements: the preference p (VirtualMachinePreference) requires the architecture arm64, and the VM is of amd64"},
		"its architecture":         {`{architecture: amd64}`, small, `{domain: {}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			used := Used{Preference: &Source{Kind: KindPreference, Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, `{requirements: `+c.requires+`}`)}}
			if c.typ != "" {
				used.Type = typeOf(t, c.typ)
			}
			_, errs := Expand(vmOf(t, c.vm), used, "")
			if got := said(errs); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func vmOf(t *testing.T, spec string) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{}
	vm.Name, vm.Namespace, vm.UID = "web", "ns", "vm-uid"
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *parse[v1.VirtualMachineInstanceSpec](t, spec)}
	return vm
}

func typeOf(t *testing.T, spec string) *Source {
	t.Helper()
	return &Source{Kind: KindType, Name: "t", UID: "type-uid", Generation: 3, Type: parse[instancetypev1.VirtualMachineInstancetypeSpec](t, spec)}
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func orEmpty(text string) string {
	if text == "" {
		return `{domain: {}}`
	}
	return text
}

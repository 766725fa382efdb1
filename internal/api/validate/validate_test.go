package validate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine/firmware"
)

var settings = clusterconfig.FromKubeVirt(nil)

// KubeVirt ignores them as well, and manifests contain them.
func TestNamesThatChangeNothingAreAccepted(t *testing.T) {
	vm := parse[v1.VirtualMachine](t, `
metadata: {name: vm, namespace: lab}
spec:
  runStrategy: Always
  dataVolumeTemplates:
  - metadata: {name: data, namespace: lab}
    spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}
  template:
    metadata: {name: another}
    spec:
      domain: {memory: {guest: 128Mi}, devices: {}}
      volumes: [{name: data, dataVolume: {name: data}}]
`)
	if errs := VM(vm, nil, clusterconfig.FromKubeVirt(nil)); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
}

const goodVM = `
metadata: {name: vm}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: web, kubevirt.io/size: small}, annotations: {note: x}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations: [{operator: Exists}]
      hostname: web-1
      readinessProbe: {httpGet: {port: 80, path: /ready}}
      evictionStrategy: LiveMigrateIfPossible
      domain:
        resources: {requests: {memory: 128Mi, cpu: 500m}, limits: {memory: 1Gi}}
        cpu: {cores: 2, features: [{name: vmx, policy: disable}]}
        firmware: {bootloader: {efi: {secureBoot: false}}, serial: "VMware-42 28 3d 7b, a"}
        clock: {timezone: Europe/Berlin}
        devices:
          rng: {}
          watchdog: {name: dog, i6300esb: {action: poweroff}}
          inputs: [{name: tablet, type: tablet}]
          sound: {name: card}
          disks:
          - {name: root, disk: {bus: virtio}, bootOrder: 1, serial: root-disk, cache: none, io: native}
          - {name: data, lun: {}}
          - {name: tools, cdrom: {}}
          - {name: empty, cdrom: {bus: scsi}}
          interfaces: [{name: default, masquerade: {}, macAddress: "02:00:00:00:00:01", ports: [{port: 80}, {port: 80, protocol: UDP}]}]
      networks: [{name: default, pod: {vmNetworkCIDR: 10.1.0.0/16}}]
      volumes:
      - {name: root, containerDisk: {image: "registry.example/disk:1"}}
      - {name: data, persistentVolumeClaim: {claimName: data}}
      - {name: scratch, ephemeral: {persistentVolumeClaim: {claimName: base}}}
      - {name: tools, configMap: {name: tools}}
      - {name: seed, cloudInitNoCloud: {userDataBase64: I2Nsb3VkLWNvbmZpZw==, networkData: "version: 2"}}
`

func good(t *testing.T) *v1.VirtualMachine { return parse[v1.VirtualMachine](t, goodVM) }

func TestGoodVMIsAccepted(t *testing.T) {
	if errs := VM(good(t), nil, settings); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// A template must be judged like its future VMI.
func TestGoodVMIIsAcceptedAsItsVMWas(t *testing.T) {
	vm := good(t)
	vmi := &v1.VirtualMachineInstance{Spec: vm.Spec.Template.Spec}
	defaults.VMI(vmi, settings)
	if errs := VMI(vmi, settings); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestUpdateOfVM(t *testing.T) {
	for name, test := range map[string]struct {
		change func(vm *v1.VirtualMachine)
		want   string
	}{
		"the UUID is changed": {
			change: func(vm *v1.VirtualMachine) { firmware.Set(&vm.Spec.Template.Spec, firmware.New()) },
		},
		"the UUID is removed": {
			change: func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Domain.Firmware.UUID = "" },
			want: "spec.template.spec.domain.firmware.uuid: Forbidden: the firmware UUID can be changed but not removed; " +
				"the VM has 4baaa5c7-8a28-5f9b-aeed-fda8e6b6f2b8",
		},
		"something else is wrong": {
			change: func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "a.b" },
			want:   `spec.template.spec.hostname: Invalid value: "a.b": must not contain dots`,
		},
		"only a finalizer goes, of a VM that would be refused today": {
			change: func(vm *v1.VirtualMachine) {
				vm.Finalizers = nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := good(t)
			firmware.Set(&old.Spec.Template.Spec, "4baaa5c7-8a28-5f9b-aeed-fda8e6b6f2b8")
			old.Finalizers = []string{"x"}
			if name == "only a finalizer goes, of a VM that would be refused today" {
				old.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
			}
			vm := old.DeepCopy()
			test.change(vm)
			if got := text(VM(vm, old, settings)); got != test.want {
				t.Errorf("errors are %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheDisksOfAVMThatIsSnapshottedOrRestored(t *testing.T) {
	const volumes, templates = "spec.template.spec.volumes: Forbidden: Cannot update vm disks or volumes until ", "spec.dataVolumeTemplates: Forbidden: Cannot update vm disks or volumes until "
	exchange := func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = vm.Spec.Template.Spec.Volumes[1:]
		vm.Spec.Template.Spec.Domain.Devices.Disks = vm.Spec.Template.Spec.Domain.Devices.Disks[1:]
	}
	strategy := func(s v1.VirtualMachineRunStrategy) func(*v1.VirtualMachine) {
		return func(vm *v1.VirtualMachine) { vm.Spec.Running, vm.Spec.RunStrategy = nil, &s }
	}
	for name, test := range map[string]struct {
		change             func(vm *v1.VirtualMachine)
		snapshot, restored string
	}{
		"are not exchanged": {exchange, volumes + `snapshot "s" completes`, volumes + `restore "r" completes`},
		"nor their templates": {func(vm *v1.VirtualMachine) { vm.Spec.DataVolumeTemplates = nil },
			templates + `snapshot "s" completes`, templates + `restore "r" completes`},
		"something else is": {func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" }, "", ""},
		"it may be started when it is not restored": {strategy(v1.RunStrategyAlways), "",
			`spec.runStrategy: Forbidden: Cannot update VM runStrategy until restore "r" completes`},
		"it may stay stopped": {strategy(v1.RunStrategyHalted), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			old := good(t)
			strategy(v1.RunStrategyManual)(old)
			old.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "x"},
				Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
					Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}}
			old.Spec.Template.Spec.Volumes[1].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "x"}}
			vm := old.DeepCopy()
			test.change(vm)
			if got := text(VM(vm, old, settings)); got != "" {
				t.Errorf("a VM of which nothing is in progress is refused: %s", got)
			}
			old.Status.SnapshotInProgress = new("s")
			if got := text(VM(vm, old, settings)); got != test.snapshot {
				t.Errorf("while it is snapshotted: %q, want %q", got, test.snapshot)
			}
			old.Status.RestoreInProgress = new("r")
			if got := text(VM(vm, old, settings)); got != test.restored {
				t.Errorf("while it is restored: %q, want %q", got, test.restored)
			}
		})
	}
}

func TestUpdateOfVMIByUsers(t *testing.T) {
	old := &v1.VirtualMachineInstance{}
	old.Labels = map[string]string{v1.NodeNameLabel: "node1", "app": "web"}
	old.Annotations = map[string]string{hotplug.RecordAnnotation: "{}"}
	old.Status.Phase = v1.Running
	for name, test := range map[string]struct {
		change func(*v1.VirtualMachineInstance)
		owned  bool
		want   string
	}{
		"labels and annotations": {change: func(vmi *v1.VirtualMachineInstance) {
			vmi.Labels["app"] = "db"
			vmi.Annotations["a"] = "b"
		}},
		"finalizers, as the garbage collector changes them": {change: func(vmi *v1.VirtualMachineInstance) {
			vmi.Finalizers = []string{metav1.FinalizerDeleteDependents}
		}},
		"the node's label": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" },
			want:   "metadata.labels[kubevirt.io/nodeName]: Forbidden: modification of the reserved kubevirt.io labels on a VMI object is prohibited",
		},
		"the record of attachment pods": {
			change: func(vmi *v1.VirtualMachineInstance) { delete(vmi.Annotations, hotplug.RecordAnnotation) },
			want:   "metadata.annotations[drydock.dev/attachment-pods]: Forbidden: only Drydock's components keep this record of a VMI's volumes",
		},
		"what is to be forced out of its guest": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Annotations[hotplugspec.ForcedAnnotation] = `["data"]` },
			want:   "metadata.annotations[drydock.dev/forced-volumes]: Forbidden: only Drydock's components keep this record of a VMI's volumes",
		},
		"what its guest was started with": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Annotations[v1.IgnitionAnnotation] = "{}" },
			want: "metadata.annotations[kubevirt.io/ignitiondata]: Forbidden: a guest keeps what it has from its start: " +
				"delete the VMI and create it anew, or change the template of its VirtualMachine",
		},
		"what its machine was built by": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Annotations[v1.DisablePCIHole64], vmi.Annotations[v1.FreePageReportingDisabledAnnotation] = "true", "true"
			},
			want: "[metadata.annotations[kubevirt.io/disablePCIHole64]: Forbidden: a guest keeps what it has from its start: " +
				"delete the VMI and create it anew, or change the template of its VirtualMachine, " +
				"metadata.annotations[kubevirt.io/free-page-reporting-disabled]: Forbidden: a guest keeps what it has from its start: " +
				"delete the VMI and create it anew, or change the template of its VirtualMachine]",
		},
		"a hook that is new": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Annotations[layout.HookSidecarsAnnotation] = "[]" },
			want: "metadata.annotations[hooks.kubevirt.io/hookSidecars]: Forbidden: not supported by Drydock: a hook changes the definition " +
				"that libvirt has of a guest, and there is no libvirt here; use the spec's fields",
		},
		"spec and status": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Hostname = "x"
				vmi.Status.Phase = v1.Failed
			},
			want: "[spec: Forbidden: update of VMI object is restricted: delete it and create it anew; a VirtualMachine can be changed, " +
				"status: Forbidden: only Drydock's components report a guest's state]",
		},
		"the spec of a machine's VMI": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Hostname = "x" },
			owned:  true,
			want:   "spec: Forbidden: update of VMI object is restricted: change the template of its owner instead",
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, vmi := old.DeepCopy(), old.DeepCopy()
			if test.owned {
				old.OwnerReferences = []metav1.OwnerReference{{Name: "vm", Controller: new(true)}}
			}
			test.change(vmi)
			if got := text(VMIUpdate(vmi, old)); got != test.want {
				t.Errorf("errors are %q, want %q", got, test.want)
			}
		})
	}
}

func TestNobodyGivesANewVMIWhatIsReserved(t *testing.T) {
	labels := map[string]string{v1.NodeNameLabel: "node1"}
	annotations := map[string]string{hotplug.RecordAnnotation: "{}", layout.MaintenanceOpenAnnotation: "true"}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: good(t).Spec.Template.Spec}
	defaults.VMI(vmi, settings)
	want := []string{"metadata.labels[kubevirt.io/nodeName]", "metadata.annotations[drydock.dev/attachment-pods]",
		"metadata.annotations[kubevirt.io/maintenance-open]"}
	if diff := cmp.Diff(want, fields(VMI(vmi, settings))); diff != "" {
		t.Error(diff)
	}
	// virt-controller would copy it from a template into its VMI.
	vm := good(t)
	vm.Spec.Template.ObjectMeta.Labels, vm.Spec.Template.ObjectMeta.Annotations = labels, annotations
	for i := range want {
		want[i] = "spec.template." + want[i]
	}
	if diff := cmp.Diff(want, fields(VM(vm, nil, settings))); diff != "" {
		t.Error(diff)
	}
}

// TestNobodyChoosesTheContextOfHisPods: virt-controller gives a VMI's attachment pods the level in its status. With
// another tenant's level, a user could have his volumes, and shared ones, labeled for that tenant's guests.
func TestNobodyChoosesTheContextOfHisPods(t *testing.T) {
	const stolen = "system_u:system_r:container_t:s0:c1,c2"
	vmi := &v1.VirtualMachineInstance{Spec: good(t).Spec.Template.Spec}
	vmi.Status.SelinuxContext = stolen
	defaults.VMI(vmi, settings)
	if got := vmi.Status.SelinuxContext; got != "" {
		t.Errorf("a new VMI was admitted with the context %s", got)
	}
	changed := vmi.DeepCopy()
	changed.Status.SelinuxContext = stolen
	if diff := cmp.Diff([]string{"status"}, fields(VMIUpdate(changed, vmi))); diff != "" {
		t.Errorf("a tenant's change of the context: %s", diff)
	}
}

// By hostDisk the creator of a VM reaches the files of nodes, so an administrator must allow it first.
func TestHostDisksNeedTheirGate(t *testing.T) {
	host := v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{
		HostDisk: &v1.HostDisk{Path: "/srv/disk.img", Type: v1.HostDiskExists},
	}}
	vm := good(t)
	spec := &vm.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, host)
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: "host"})
	for _, gates := range [][]string{nil, {"LiveMigration"}, {"LiveMigration", clusterconfig.GateHostDisk}} {
		settings := clusterconfig.FromKubeVirt(&v1.KubeVirt{Spec: v1.KubeVirtSpec{Configuration: v1.KubeVirtConfiguration{
			DeveloperConfiguration: &v1.DeveloperConfiguration{FeatureGates: gates},
		}}})
		vmi := &v1.VirtualMachineInstance{Spec: *spec.DeepCopy()}
		defaults.VMI(vmi, settings)
		for what, errs := range map[string]field.ErrorList{"a VM": VM(vm, nil, settings), "a VMI": VMI(vmi, settings)} {
			refused := strings.Contains(text(errs), "HostDisk feature gate is not enabled")
			if refused != (len(gates) < 2) || refused != (len(errs) > 0) {
				t.Errorf("%s with a host disk and the gates %v: %v", what, gates, errs)
			}
		}
	}
}

// Guests must get figures of nodes only if an administrator allows it (decision 603).
func TestDownwardMetricsNeedTheirGate(t *testing.T) {
	disk, channel := good(t), good(t)
	spec := &disk.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "figures", VolumeSource: v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}})
	channel.Spec.Template.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	for field, vm := range map[string]*v1.VirtualMachine{"volumes[": disk, "domain.devices.downwardMetrics": channel} {
		for _, allowed := range []bool{false, true} {
			settings := clusterconfig.FromKubeVirt(nil)
			settings.HostDisk, settings.DownwardMetrics = true, allowed
			errs := VM(vm.DeepCopy(), nil, settings)
			if refused := len(errs) == 1 && strings.Contains(text(errs), field) && strings.Contains(text(errs), "DownwardMetrics feature gate is not enabled"); refused == allowed ||
				allowed && len(errs) > 0 {
				t.Errorf("%s, allowed %v: %v", field, allowed, errs)
			}
		}
	}
}

func TestBindingsMustBeRegistered(t *testing.T) {
	vm := good(t)
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{}
	spec.Domain.Devices.Interfaces[0].Ports = nil
	spec.Domain.Devices.Interfaces[0].Binding = &v1.PluginBinding{Name: "mine"}
	for name, want := range map[string]string{
		"mine":  "",
		"yours": `spec.domain.devices.interfaces[0].binding.name: Forbidden: there is no network binding "mine" in the KubeVirt object's spec.configuration.network.binding, which has yours`,
	} {
		settings := clusterconfig.FromKubeVirt(&v1.KubeVirt{Spec: v1.KubeVirtSpec{Configuration: v1.KubeVirtConfiguration{
			NetworkConfiguration: &v1.NetworkConfiguration{Binding: map[string]v1.InterfaceBindingPlugin{name: {DomainAttachmentType: v1.Tap}}},
		}}})
		vmi := &v1.VirtualMachineInstance{Spec: *spec.DeepCopy()}
		defaults.VMI(vmi, settings)
		if errs := VMI(vmi, settings); (len(errs) > 0) != (want != "") || !strings.Contains(text(errs), want) {
			t.Errorf("a VMI, with %s: %v", name, errs)
		}
		if errs := VM(vm, nil, settings); (len(errs) > 0) != (want != "") || want != "" && !strings.Contains(text(errs), "spec.template."+want) {
			t.Errorf("a VM, with %s: %v", name, errs)
		}
	}
}

func text(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func fields(errs field.ErrorList) []string {
	var paths []string
	for _, err := range errs {
		paths = append(paths, err.Field)
	}
	return paths
}

// Whatever a manifest contains, judging it may fail only by returning errors.
func FuzzVM(f *testing.F) {
	f.Add([]byte(goodVM))
	f.Add([]byte("spec: {template: {spec: {domain: {memory: {guest: 1e99}, cpu: {sockets: 4294967295, cores: 4294967295}}}}}"))
	f.Fuzz(func(_ *testing.T, manifest []byte) {
		vm, err := decode(manifest)
		if err != nil {
			return
		}
		completed := vm.DeepCopy()
		defaults.VM(completed, nil, settings)
		VM(completed, nil, settings)
		VM(vm, completed, settings)
	})
}

func TestDeprecatedFieldsAreNamedWithTheirSuccessors(t *testing.T) {
	strategy := v1.RunStrategyAlways
	tests := map[string]struct {
		spec v1.VirtualMachineSpec
		want []string
	}{
		"a run strategy": {spec: v1.VirtualMachineSpec{RunStrategy: &strategy}},
		"running":        {v1.VirtualMachineSpec{Running: new(true)}, []string{"spec.running is deprecated: set spec.runStrategy to Always instead"}},
		"not running":    {v1.VirtualMachineSpec{Running: new(false)}, []string{"spec.running is deprecated: set spec.runStrategy to Halted instead"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, VMWarnings(&v1.VirtualMachine{Spec: test.spec}, nil, clusterconfig.FromKubeVirt(nil))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

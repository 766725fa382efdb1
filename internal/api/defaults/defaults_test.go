package defaults

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

const uid = "5d307ca9-b3ef-428c-8861-06e72d69f223"

func settings(t *testing.T, configuration string) clusterconfig.Settings {
	t.Helper()
	kv := &v1.KubeVirt{}
	if err := yaml.UnmarshalStrict([]byte(configuration), &kv.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	return clusterconfig.FromKubeVirt(kv)
}

// A spec, and its defaulted form.
func TestSpec(t *testing.T) {
	const rest = `
architecture: amd64
evictionStrategy: None
terminationGracePeriodSeconds: 30
`
	const common = rest + `
networks: [{name: default, pod: {}}]
`
	for name, test := range map[string]struct{ spec, configuration, want string }{
		"a guest that asks for memory only": {
			spec: `{domain: {devices: {}, memory: {guest: 64Mi}}}`,
			want: common + `
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 64Mi}
  devices: {interfaces: [{name: default, masquerade: {}}]}
`,
		},
		"enlightenments that need others": {
			spec: `{domain: {devices: {}, memory: {guest: 64Mi}, features: {hyperv: {ipi: {}, synictimer: {}}}}}`,
			want: common + `
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 64Mi}
  clock: {timer: {hyperv: {present: true}}}
  features: {hyperv: {ipi: {}, synictimer: {}, synic: {enabled: true}, vpindex: {enabled: true}}}
  devices: {interfaces: [{name: default, masquerade: {}}]}
`,
		},
		"what the cluster has pods ask for": {
			spec:          `{domain: {devices: {}, memory: {guest: 300Mi}}}`,
			configuration: `{cpuRequest: 70m, developerConfiguration: {memoryOvercommit: 150}}`,
			want: common + `
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 300Mi}
  resources: {requests: {cpu: 70m, memory: 200Mi}}
  devices: {interfaces: [{name: default, masquerade: {}}]}
`,
		},
		"what the guest asks for counts first": {
			spec:          `{domain: {devices: {}, memory: {guest: 64Mi}, resources: {requests: {memory: 64Mi, cpu: 10m}}}}`,
			configuration: `{cpuRequest: 70m, developerConfiguration: {memoryOvercommit: 200}}`,
			want: common + `
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 64Mi}
  resources: {requests: {memory: 64Mi, cpu: 10m}}
  devices: {interfaces: [{name: default, masquerade: {}}]}
`,
		},
		"the cluster's defaults": {
			spec: `{domain: {devices: {}, memory: {guest: 64Mi}}}`,
			configuration: `
cpuModel: Nehalem
evictionStrategy: LiveMigrateIfPossible
network: {defaultNetworkInterface: bridge}
architectureConfiguration: {amd64: {machineType: pc-q35-6.2}}`,
			want: `
architecture: amd64
evictionStrategy: LiveMigrateIfPossible
terminationGracePeriodSeconds: 30
networks: [{name: default, pod: {}}]
domain:
  machine: {type: pc-q35-6.2}
  cpu: {cores: 1, sockets: 1, threads: 1, model: Nehalem}
  memory: {guest: 64Mi}
  devices: {interfaces: [{name: default, bridge: {}}]}
`,
		},
		"CPUs and memory of the pod become the guest's": {
			spec: `{domain: {devices: {autoattachPodInterface: false}, resources: {requests: {memory: 1Gi, cpu: 1500m}, limits: {memory: 2Gi}}}}`,
			want: rest + `
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 2, threads: 1}
  memory: {guest: 1Gi}
  resources: {requests: {memory: 1Gi, cpu: 1500m}, limits: {memory: 2Gi}}
  devices: {autoattachPodInterface: false}
`,
		},
		"volumes get disks, disks a bus, drives their defaults": {
			spec: `
volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
domain:
  memory: {guest: 64Mi}
  devices:
    autoattachPodInterface: false
    disks: [{name: b, disk: {bus: virtio}}, {name: l, lun: {}}, {name: c, cdrom: {}}]
`,
			want: rest + `
volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 64Mi}
  devices:
    autoattachPodInterface: false
    disks:
    - {name: b, disk: {bus: virtio}}
    - {name: l, lun: {bus: scsi}}
    - {name: c, cdrom: {bus: sata, readonly: true, tray: closed}}
    - {name: a, disk: {bus: sata}}
`,
		},
		"figures of the host get a disk that can be only read": {
			spec: `
volumes: [{name: a, downwardMetrics: {}}]
domain: {memory: {guest: 64Mi}, devices: {autoattachPodInterface: false}}
`,
			want: rest + `
volumes: [{name: a, downwardMetrics: {}}]
domain:
  machine: {type: pc-q35-10.0}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 64Mi}
  devices: {autoattachPodInterface: false, disks: [{name: a, disk: {bus: virtio}}]}
`,
		},
		"what is said is kept": {
			spec: `
terminationGracePeriodSeconds: 0
evictionStrategy: LiveMigrateIfPossible
readinessProbe: {tcpSocket: {port: 22}, periodSeconds: 3}
domain:
  machine: {type: pc-q35-5.2}
  cpu: {cores: 4, model: host-model}
  memory: {guest: 64Mi}
  resources: {limits: {cpu: "8", memory: 1Gi}}
  devices: {autoattachPodInterface: false, autoattachInputDevice: true}
`,
			want: `
architecture: amd64
terminationGracePeriodSeconds: 0
evictionStrategy: LiveMigrateIfPossible
readinessProbe: {tcpSocket: {port: 22}, periodSeconds: 3, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3}
domain:
  machine: {type: pc-q35-5.2}
  cpu: {cores: 4, sockets: 1, threads: 1, model: host-model}
  memory: {guest: 64Mi}
  resources: {limits: {cpu: "8", memory: 1Gi}}
  devices:
    autoattachPodInterface: false
    autoattachInputDevice: true
    inputs: [{name: default-0, bus: usb, type: tablet}]
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := spec(t, test.spec), spec(t, test.want)
			Spec(got, settings(t, test.configuration))
			if diff := cmp.Diff(text(t, want), text(t, got)); diff != "" {
				t.Error(diff)
			}
			again := got.DeepCopy()
			Spec(again, settings(t, test.configuration))
			if diff := cmp.Diff(text(t, got), text(t, again)); diff != "" {
				t.Errorf("completing it again changes it:\n%s", diff)
			}
		})
	}
}

func TestVM(t *testing.T) {
	s := settings(t, "")
	vm := func(spec string) *v1.VirtualMachine {
		vm := &v1.VirtualMachine{}
		if err := yaml.UnmarshalStrict([]byte(spec), vm); err != nil {
			t.Fatal(err)
		}
		return vm
	}
	identified := `{spec: {template: {spec: {domain: {devices: {}, machine: {type: pc-q35-6.2}, firmware: {uuid: ` + uid + `}}}}}}`
	bare := `{spec: {template: {spec: {domain: {devices: {}}}}}}`

	created := vm(bare)
	VM(created, nil, s)
	domain := created.Spec.Template.Spec.Domain
	if domain.Machine == nil || domain.Machine.Type != clusterconfig.DefaultMachineType || domain.Firmware == nil || domain.Firmware.UUID == "" {
		t.Errorf("a new VM is not pinned: %+v %+v", domain.Machine, domain.Firmware)
	}

	kept := vm(identified)
	VM(kept, nil, s)
	want := vm(identified)
	want.Finalizers = []string{v1.VirtualMachineControllerFinalizer}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("a VM that names both is changed:\n%s", diff)
	}

	replaced := vm(bare)
	VM(replaced, vm(identified), s)
	domain = replaced.Spec.Template.Spec.Domain
	if domain.Machine == nil || domain.Machine.Type != "pc-q35-6.2" {
		t.Errorf("a manifest without a machine type changes the guest's hardware: %+v", domain.Machine)
	}
	if domain.Firmware != nil {
		t.Error("a removed UUID is put back in silence instead of being refused")
	}

	old := vm(bare)
	VM(old, vm(bare), s)
	if diff := cmp.Diff(vm(bare), old); diff != "" {
		t.Errorf("an update of an old VM pins what its creation did not:\n%s", diff)
	}
	VM(&v1.VirtualMachine{}, nil, s)
}

func TestVMIKeepsTheUUIDOfItsVM(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: uid}
	vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	VMI(vmi, settings(t, ""))
	if vmi.Spec.Domain.Firmware.UUID != uid || len(vmi.Finalizers) != 1 {
		t.Errorf("UUID %s, finalizers %v", vmi.Spec.Domain.Firmware.UUID, vmi.Finalizers)
	}
}

// Whatever the request, every volume must have one disk, and every disk one kind.
func TestEveryVolumeHasADisk(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	propertytest.Check(t, func(t *rapid.T) {
		s := &v1.VirtualMachineInstanceSpec{}
		for _, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "volumes") {
			s.Volumes = append(s.Volumes, v1.Volume{Name: n})
		}
		for _, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "disks") {
			s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, v1.Disk{Name: n})
		}
		Spec(s, clusterconfig.FromKubeVirt(nil))
		disks := map[string]int{}
		for _, d := range s.Domain.Devices.Disks {
			disks[d.Name]++
			if d.Disk == nil || d.Disk.Bus == "" {
				t.Fatalf("disk %s has no kind or no bus", d.Name)
			}
		}
		for _, v := range s.Volumes {
			if disks[v.Name] != 1 {
				t.Fatalf("volume %s has %d disks", v.Name, disks[v.Name])
			}
		}
	})
}

func spec(t *testing.T, manifest string) *v1.VirtualMachineInstanceSpec {
	t.Helper()
	s := &v1.VirtualMachineInstanceSpec{}
	if err := yaml.UnmarshalStrict([]byte(manifest), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func text(t *testing.T, s *v1.VirtualMachineInstanceSpec) string {
	t.Helper()
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A user applies a manifest over an existing VMI: the same manifest must be completed as at first; anything else must
// be left for validation to refuse.
func TestVMIUpdate(t *testing.T) {
	const manifest = `{domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {}}, {name: cd, cdrom: {}}]}}}`
	old := &v1.VirtualMachineInstance{Spec: *spec(t, manifest)}
	VMI(old, settings(t, ""))
	for name, test := range map[string]struct {
		written string
		settles bool
	}{
		"the same manifest":     {manifest, true},
		"a disk on another bus": {`{domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}, {name: cd, cdrom: {}}]}}}`, false},
		"more memory":           {`{domain: {memory: {guest: 2Gi}, devices: {disks: [{name: root, disk: {}}, {name: cd, cdrom: {}}]}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{Spec: *spec(t, test.written)}
			before := vmi.Spec.DeepCopy()
			VMIUpdate(vmi, old, settings(t, ""))
			want := before
			if test.settles {
				want = &old.Spec
			}
			if diff := cmp.Diff(*want, vmi.Spec); diff != "" {
				t.Errorf("the spec (-want +got):\n%s", diff)
			}
		})
	}
}

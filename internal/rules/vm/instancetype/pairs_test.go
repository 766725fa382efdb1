package instancetype_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/rules/vm/commontypes"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

var update = flag.Bool("update", false, "write the golden files anew")

// plain sets no field that a preference could set; choosy sets all of them, and has a hotpluggable disk.
var machines = map[string]string{
	"plain": `{domain: {devices: {}}, volumes: [{name: root, containerDisk: {image: "registry.example.com/system:1"}}, {name: init, cloudInitNoCloud: {userData: "#cloud-config"}}]}`,
	"choosy": `
domain:
  clock: {timezone: Europe/Paris}
  features: {acpi: {}, smm: {enabled: false}}
  firmware: {bootloader: {bios: {}}}
  devices:
    rng: {}
    tpm: {enabled: false}
    inputs: [{name: pointer, type: tablet, bus: usb}]
    video: {type: vga}
    disks: [{name: root, disk: {bus: scsi}}, {name: plugged, disk: {}}, {name: medium, cdrom: {}}]
    interfaces: [{name: default, bridge: {}, model: e1000}]
networks: [{name: default, pod: {}}]
terminationGracePeriodSeconds: 30
volumes:
- {name: root, persistentVolumeClaim: {claimName: root}}
- {name: plugged, persistentVolumeClaim: {claimName: plugged, hotpluggable: true}}
- {name: medium, containerDisk: {image: "registry.example.com/medium:1"}}`,
	"greedy": `{domain: {devices: {}, cpu: {cores: 2}, memory: {guest: 1Gi}, resources: {limits: {cpu: "2"}}}}`,
}

// pair is a type and a preference of the bundle, or "" for none, and the VM that refers to them.
type pair struct{ instancetype, preference, machine string }

// pairs has each preference of the bundle with a possible type, and some impossible combinations.
var pairs = []pair{
	{"u1.nano", "alpine", "plain"},
	{"u1.small", "centos.stream10", "plain"},
	{"u1.medium", "centos.stream10.desktop", "plain"},
	{"o1.small", "centos.stream9", "plain"},
	{"o1.medium", "centos.stream9.desktop", "plain"},
	{"n1.2xlarge", "centos.stream9.dpdk", "plain"},
	{"u1.micro", "cirros", "plain"},
	{"d1.small", "debian", "plain"},
	{"u1.medium", "fedora", "plain"},
	{"u1.nano", "legacy", "plain"},
	{"o1.nano", "linux", "plain"},
	{"m1.large", "linux.efi", "plain"},
	{"u1.large", "linux.virtiotransitional", "plain"},
	{"cx1.large", "opensuse.leap", "plain"},
	{"cx1.medium1gi", "opensuse.tumbleweed", "plain"},
	{"u1.2xmedium", "oraclelinux", "plain"},
	{"m1.xlarge1gi", "rhel.10", "plain"},
	{"u1.micro", "rhel.7", "plain"},
	{"u1.small", "rhel.7.desktop", "plain"},
	{"o1.large", "rhel.8", "plain"},
	{"o1.xlarge", "rhel.8.desktop", "plain"},
	{"u1.2xlarge", "rhel.8.dpdk", "plain"},
	{"d1.xlarge", "rhel.9", "plain"},
	{"u1.xlarge", "rhel.9.desktop", "plain"},
	{"n1.4xlarge", "rhel.9.dpdk", "plain"},
	{"rt1.xlarge", "rhel.9.realtime", "plain"},
	{"m1.2xlarge", "sles", "plain"},
	{"u1.small", "ubuntu", "plain"},
	{"u1.medium", "windows.10", "plain"},
	{"u1.medium", "windows.10.virtio", "plain"},
	{"u1.large", "windows.11", "plain"},
	{"o1.large", "windows.11.virtio", "plain"},
	{"u1.micro", "windows.2k12", "plain"},
	{"u1.micro", "windows.2k12.virtio", "plain"},
	{"u1.large", "windows.2k16", "plain"},
	{"u1.large", "windows.2k16.virtio", "plain"},
	{"m1.4xlarge", "windows.2k19", "plain"},
	{"m1.8xlarge1gi", "windows.2k19.virtio", "plain"},
	{"cx1.2xlarge", "windows.2k22", "plain"},
	{"d1.4xlarge", "windows.2k22.virtio", "plain"},
	{"u1.4xlarge", "windows.2k25", "plain"},
	{"u1.8xlarge", "windows.2k25.virtio", "plain"},
	{"u1.nano", "windows.2k3", "plain"},
	{"u1.nano", "windows.2k8", "plain"},
	{"o1.micro", "windows.2k8.virtio", "plain"},
	{"u1.small", "windows.7", "plain"},
	{"u1.small", "windows.7.virtio", "plain"},
	{"u1.nano", "windows.xp", "plain"},
	{"u1.medium", "fedora.arm64", "plain"},
	{"u1.medium", "rhel.10.arm64", "plain"},
	{"u1.medium", "rhel.9.arm64", "plain"},
	{"u1.medium", "fedora.s390x", "plain"},
	{"u1.medium", "rhel.10.s390x", "plain"},
	{"u1.medium", "rhel.9.s390x", "plain"},
	{"none", "linux", "plain"},
	{"u1.medium", "none", "plain"},
	{"u1.medium", "fedora", "choosy"},
	{"u1.large", "windows.11", "choosy"},
	{"o1.large", "rhel.9.desktop", "choosy"},
	{"u1.medium", "debian", "greedy"},
	{"none", "debian", "plain"},
	{"u1.medium", "windows.11", "plain"},
	{"u1.micro", "fedora", "plain"},
	{"u1.xlarge", "rhel.9.dpdk", "plain"},
}

func (p pair) file() string {
	return filepath.Join("testdata", "pairs", fmt.Sprintf("%s+%s+%s.yaml", p.instancetype, p.preference, p.machine))
}

// TestPairs compares the VMI of each pair, or the refusal, as text. Guests see a difference there: read it before
// -update.
func TestPairs(t *testing.T) {
	if *update {
		if err := os.RemoveAll(filepath.Join("testdata", "pairs")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join("testdata", "pairs"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	for _, p := range pairs {
		t.Run(p.file(), func(t *testing.T) {
			got, vmi := p.outcome(t)
			if vmi {
				made++
			}
			if *update {
				if err := os.WriteFile(p.file(), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(p.file())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if made < 50 {
		t.Errorf("%d pairs have a VMI, want at least 50", made)
	}
	for _, preference := range commontypes.Preferences() {
		if !slices.ContainsFunc(pairs, func(p pair) bool { return p.preference == preference.Name }) {
			t.Errorf("no pair has the preference %s", preference.Name)
		}
	}
	if files, err := filepath.Glob(filepath.Join("testdata", "pairs", "*")); err != nil || len(files) != len(pairs) {
		t.Errorf("there are %d files for %d pairs (%v)", len(files), len(pairs), err)
	}
}

// outcome returns virt-controller's VMI for a VM with the pair, or its refusal.
func (p pair) outcome(t *testing.T) (text []byte, isVMI bool) {
	t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm", Finalizers: []string{v1.VirtualMachineControllerFinalizer}},
		Spec:       v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyAlways), Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
	if err := yaml.UnmarshalStrict([]byte(machines[p.machine]), &vm.Spec.Template.Spec); err != nil {
		t.Fatal(err)
	}
	vm.Spec.Template.Spec.Domain.Firmware = withUUID(vm.Spec.Template.Spec.Domain.Firmware)
	o := vmcontroller.Observed{VM: vm, VMConfirmed: true, VMIAsked: true, Binding: "masquerade", Now: time.Unix(0, 0)}
	for _, object := range commontypes.Instancetypes() {
		if object.Name == p.instancetype {
			vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: object.Name, Kind: instancetype.KindClusterType}
			o.Type = &vmcontroller.Referred{Source: instancetype.SourceOf(object)}
		}
	}
	for _, object := range commontypes.Preferences() {
		if object.Name == p.preference {
			vm.Spec.Preference = &v1.PreferenceMatcher{Name: object.Name, Kind: instancetype.KindClusterPreference}
			o.Preference = &vmcontroller.Referred{Source: instancetype.SourceOf(object)}
		}
	}
	plan := vmcontroller.Decide(o)
	if plan.Needs != "" {
		t.Fatalf("the decision depends on %s", plan.Needs)
	}
	if plan.Create == nil {
		for _, c := range plan.VM.Status.Conditions {
			if c.Type == v1.VirtualMachineFailure {
				return encoded(t, map[string]any{"refused": c.Message}), false
			}
		}
		t.Fatalf("there is neither a VMI nor a reason: %+v", plan.VM.Status)
	}
	return encoded(t, map[string]any{"annotations": plan.Create.Annotations, "spec": plan.Create.Spec}), true
}

func withUUID(f *v1.Firmware) *v1.Firmware {
	if f == nil {
		f = &v1.Firmware{}
	}
	f.UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	return f
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(text, []byte("creationTimestamp: null\n"), nil)
}

package supported

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhatHasNoEffectIsTold(t *testing.T) {
	kv := &v1.KubeVirt{}
	manifest := `
spec:
  imageTag: v1.9.0
  customizeComponents: {}
  configuration:
    ovmfPath: /usr/share/OVMF
    network: {permitSlirpInterface: true}
    migrations: {nodeDrainTaintKey: kubevirt.io/drain, disableTLS: true}
`
	if err := yaml.UnmarshalStrict([]byte(manifest), kv); err != nil {
		t.Fatal(err)
	}
	at := field.NewPath("spec")
	want := []string{
		"spec.imageTag has no effect: Drydock is installed by its manifests, which name the images",
		"spec.configuration.migrations.disableTLS has no effect: what is sent from node to node is always encrypted",
		"spec.configuration.network.permitSlirpInterface has no effect: slirp is refused; use masquerade",
		"spec.configuration.ovmfPath has no effect: the firmware is in virt-launcher's image",
	}
	if diff := cmp.Diff(want, KubeVirtSpecWarnings(&kv.Spec, at)); diff != "" {
		t.Error(diff)
	}
	if errs := KubeVirtSpec(&kv.Spec, at); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
	kv.Spec.Configuration.MigrationConfiguration.NodeDrainTaintKey = new("example.com/drain")
	if diff := cmp.Diff([]string{"spec.configuration.migrations.nodeDrainTaintKey has no effect: no taint makes guests migrate"},
		KubeVirtSpecWarnings(&v1.KubeVirtSpec{Configuration: v1.KubeVirtConfiguration{
			MigrationConfiguration: &v1.MigrationConfiguration{NodeDrainTaintKey: new("example.com/drain")},
		}}, at)); diff != "" {
		t.Error(diff)
	}
}

func TestValuesWithoutEffectAreTold(t *testing.T) {
	vm := &v1.VirtualMachine{}
	manifest := `
spec:
  template:
    spec:
      domain:
        devices:
          logSerialConsole: true
          disks: [{name: a, cdrom: {readonly: true}}, {name: b, cdrom: {readonly: false}}]
`
	if err := yaml.UnmarshalStrict([]byte(manifest), vm); err != nil {
		t.Fatal(err)
	}
	at := field.NewPath("spec")
	devices := "spec.template.spec.domain.devices."
	want := []string{
		devices + "disks[1].cdrom.readonly has no effect: nothing writes to a CD-ROM",
	}
	got := VMSpecWarnings(&vm.Spec, at)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if errs := VMSpec(&vm.Spec, at); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
	rs := &v1.VirtualMachineInstanceReplicaSetSpec{Template: vm.Spec.Template}
	if got := ReplicaSetSpecWarnings(rs, at); len(got) != len(want) {
		t.Errorf("a replica set with the template is told %q", got)
	}
	if got := ReplicaSetSpecWarnings(&v1.VirtualMachineInstanceReplicaSetSpec{}, at); len(got) > 0 {
		t.Errorf("a replica set without a template is told %q", got)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	for i := range 100 {
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: fmt.Sprint(i), ChangedBlockTracking: new(true)})
	}
	got := VMISpecWarnings(spec, field.NewPath("spec"))
	if len(got) != maxWarnings || got[maxWarnings-1] != "81 more have no effect: docs/supported-fields.md lists all" {
		t.Errorf("there are %d warnings, the last is %q", len(got), got[len(got)-1])
	}
}

// A refusal must give its reason and an alternative.
func TestEveryRefusalHasItsReason(t *testing.T) {
	tables := maps.Clone(annotationTables)
	for kind, spec := range specs {
		tables[kind] = spec.table
	}
	for kind, table := range tables {
		for _, path := range slices.Sorted(maps.Keys(table)) {
			if e := table[path]; (!e.yes || e.idle || len(e.idleValues) > 0) && e.note == "" {
				t.Errorf("%s: %s is refused or has no effect, and the table does not say why", kind, path)
			}
		}
	}
}

// mostRefused is the maximal number of refused paths in a VMI's spec, with any value, or unless the value asks for
// nothing, as false does. Fewer is better.
const mostRefused = 25

func TestFewPathsOfAVMIAreRefused(t *testing.T) {
	var refused, values []string
	for _, path := range slices.Sorted(maps.Keys(vmiTable)) {
		switch e := vmiTable[path]; {
		case e.yes:
		case len(e.only) > 0:
			values = append(values, path)
		default:
			refused = append(refused, path)
		}
	}
	t.Logf("%d paths are refused: %s", len(refused), strings.Join(refused, ", "))
	t.Logf("%d more may only be set to a value that asks for nothing: %s", len(values), strings.Join(values, ", "))
	sum := len(refused) + len(values)
	t.Logf("that is %d in all, and %d may be", sum, mostRefused)
	if sum > mostRefused {
		t.Errorf("%d paths of a VMI's spec are refused, want at most %d", sum, mostRefused)
	}
}

package supported

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

// specs are the types of the tables.
var specs = map[string]struct {
	table table
	typ   reflect.Type
}{
	"VirtualMachineInstance":           {vmiTable, reflect.TypeFor[v1.VirtualMachineInstanceSpec]()},
	"VirtualMachine":                   {vmTable, reflect.TypeFor[v1.VirtualMachineSpec]()},
	"VirtualMachineInstanceReplicaSet": {replicaSetTable, reflect.TypeFor[v1.VirtualMachineInstanceReplicaSetSpec]()},
	"VirtualMachineInstanceMigration":  {migrationTable, reflect.TypeFor[v1.VirtualMachineInstanceMigrationSpec]()},
	"MigrationPolicy":                  {migrationPolicyTable, reflect.TypeFor[migrationsv1alpha1.MigrationPolicySpec]()},
	"VirtualMachineSnapshot":           {snapshotTable, reflect.TypeFor[snapshotv1.VirtualMachineSnapshotSpec]()},
	"VirtualMachineRestore":            {restoreTable, reflect.TypeFor[snapshotv1.VirtualMachineRestoreSpec]()},
	"VirtualMachineClone":              {cloneTable, reflect.TypeFor[clonev1.VirtualMachineCloneSpec]()},
	"DataVolume":                       {dataVolumeTable, reflect.TypeFor[cdiv1.DataVolumeSpec]()},
	"CDI":                              {cdiTable, reflect.TypeFor[cdiv1.CDISpec]()},
	"KubeVirt":                         {kubeVirtTable, reflect.TypeFor[v1.KubeVirtSpec]()},
}

// census compares a table with a type.
type census struct {
	table table
	seen  map[string]bool
	// unlisted are fields without an entry; coarse are entries that support a whole struct of KubeVirt's, where a new
	// field would go unnoticed. If a struct has no effect its new parts have none either, and the message names the
	// whole.
	unlisted, coarse []string
}

func (c *census) visit(t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	e, listed := c.table[at]
	switch {
	case listed:
		c.seen[at] = true
		if e.yes && !e.idle && at != "template.spec" && at != "dataVolumeTemplates.spec" && ownStruct(t) && t.NumField() > 0 {
			c.coarse = append(c.coarse, at)
		}
	case ownStruct(t) && t.NumField() > 0:
		for _, f := range fieldsOf(t) {
			c.visit(f.typ, join(at, f.name))
		}
	default:
		c.unlisted = append(c.unlisted, at+" ("+t.String()+")")
	}
}

// Kubernetes' own structs go into the launcher pod unchanged.
func ownStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "kubevirt.io/")
}

func TestTablesHoldEveryFieldOfTheTypes(t *testing.T) {
	for kind, spec := range specs {
		c := &census{table: spec.table, seen: map[string]bool{}}
		c.visit(spec.typ, "")
		for _, path := range c.unlisted {
			t.Errorf("%s: the API has %s, the table says nothing about it", kind, path)
		}
		for _, path := range c.coarse {
			t.Errorf("%s: %s supports a whole struct; list its fields, so that a new one is noticed", kind, path)
		}
		for path := range spec.table {
			if !c.seen[path] {
				t.Errorf("%s: the table lists %s, which the API does not have", kind, path)
			}
		}
	}
}

func TestCensusNoticesANewField(t *testing.T) {
	without := merge(vmiTable)
	delete(without, "domain.devices.rng")
	without["domain.devices.quantumLink"] = yes()
	c := &census{table: without, seen: map[string]bool{}}
	c.visit(reflect.TypeFor[v1.VirtualMachineInstanceSpec](), "")
	if !slices.ContainsFunc(c.unlisted, func(s string) bool { return strings.HasPrefix(s, "domain.devices.rng ") }) {
		t.Error("a field without an entry is not noticed")
	}
	if c.seen["domain.devices.quantumLink"] {
		t.Error("an entry without a field is not noticed")
	}
}

// A manifest with every kind of unsupported field: each must be named.
func TestUnsupportedFieldsAreNamed(t *testing.T) {
	vm := &v1.VirtualMachine{}
	manifest := `
spec:
  instancetype: {name: u1.medium, inferFromVolumeFailurePolicy: Retry}
  runStrategy: WaitAsReceiver
  updateVolumesStrategy: Sometimes
  template:
    spec:
      evictionStrategy: Sometimes
      domain:
        cpu: {dedicatedCpuPlacement: true, realtime: {}, cores: 2}
        firmware: {bootloader: {efi: {persistent: true, secureBoot: false}}}
        devices:
          gpus: [{name: gpu, claimName: c, virtualGPUOptions: {display: {enabled: true}}}]
          tpm: {persistent: true}
          autoattachVSOCK: false
          rng: {}
          interfaces: [{name: default, masquerade: {}}, {name: two, slirp: {}, state: gone}]
          disks: [{name: a, disk: {bus: virtio}}, {name: b, tag: x, lun: {bus: sata}}]
      networks: [{name: default, pod: {}}, {name: two, multus: {networkName: blue, default: true}}]
      volumes:
      - name: a
        persistentVolumeClaim: {claimName: a, hotpluggable: true}
      - name: b
        containerPath: {path: /x, readOnly: true}
`
	if err := yaml.UnmarshalStrict([]byte(manifest), vm); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`spec.instancetype.inferFromVolumeFailurePolicy: Unsupported value: "Retry": supported values: "Reject", "Ignore"`,
		`spec.updateVolumesStrategy: Unsupported value: "Sometimes": supported values: "Replacement", "Migration"`,
		`spec.runStrategy: Unsupported value: "WaitAsReceiver": supported values: "Always", "RerunOnFailure", "Once", "Manual", "Halted"`,
		`spec.template.spec.evictionStrategy: Unsupported value: "Sometimes": supported values: "None", "LiveMigrate", "LiveMigrateIfPossible", "External"`,
		`spec.template.spec.domain.cpu.realtime: Forbidden: not supported by Drydock: virtual CPUs get no real-time priority; dedicatedCpuPlacement with isolateEmulatorThread keeps other threads from their CPUs`,
		`spec.template.spec.domain.devices.gpus[0].claimName: Forbidden: not supported by Drydock: devices of claims don't get to guests; name a device plugin's resource in deviceName`,
		`spec.template.spec.domain.devices.gpus[0].virtualGPUOptions: Forbidden: not supported by Drydock: it is for virtual GPUs, which don't get to guests; a GPU that is passed whole has its own outputs`,
		`spec.template.spec.domain.devices.interfaces[1].slirp: Forbidden: not supported by Drydock: use masquerade`,
		`spec.template.spec.domain.devices.interfaces[1].state: Unsupported value: "gone": supported values: "up", "down", "absent"`,
		`spec.template.spec.domain.devices.disks[1].lun.bus: Unsupported value: "sata": supported values: "scsi"`,
		`spec.template.spec.networks[1].multus.default: Forbidden: not supported by Drydock: make it a network beside the pod's, or the pods' network of the namespace`,
		`spec.template.spec.volumes[1].containerPath: Forbidden: not supported by Drydock: guests share no folders; configMap, secret, serviceAccount and downwardAPI are disks`,
	}
	var got []string
	for _, err := range VMSpec(&vm.Spec, field.NewPath("spec")) {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKubeVirtObjectsOfUpstreamsManifestsAreAccepted(t *testing.T) {
	kv := &v1.KubeVirt{}
	manifest := `
spec:
  certificateRotateStrategy: {}
  customizeComponents: {}
  imagePullPolicy: IfNotPresent
  workloadUpdateStrategy: {}
  configuration:
    vmRolloutStrategy: LiveUpdate
    developerConfiguration: {featureGates: [HotplugVolumes], useEmulation: true}
`
	if err := yaml.UnmarshalStrict([]byte(manifest), kv); err != nil {
		t.Fatal(err)
	}
	if errs := KubeVirtSpec(&kv.Spec, field.NewPath("spec")); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestPageIsWhatTheTableSays(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/supported-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(Document()), string(page)); diff != "" {
		t.Errorf("docs/supported-fields.md is not what is generated; run make generate\n%s", diff)
	}
}

func TestATemplateThatIsLeftOutIsNotJudged(t *testing.T) {
	at := field.NewPath("spec")
	if errs := VMSpec(&v1.VirtualMachineSpec{}, at); len(errs) > 0 {
		t.Errorf("a VM without a template: %v", errs)
	}
	if errs := ReplicaSetSpec(&v1.VirtualMachineInstanceReplicaSetSpec{}, at); len(errs) > 0 {
		t.Errorf("a replica set without a template: %v", errs)
	}
	template := &v1.VirtualMachineInstanceTemplateSpec{}
	template.Spec.Domain.Devices.ClientPassthrough = &v1.ClientPassthroughDevices{}
	errs := ReplicaSetSpec(&v1.VirtualMachineInstanceReplicaSetSpec{Template: template}, at)
	if want := "spec.template.spec.domain.devices.clientPassthrough: Forbidden: not supported by Drydock: USB devices of clients don't get to guests"; len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("a replica set of machines with redirected USB: %v, want %s", errs, want)
	}
}

// Embedded is exported as the API's own embedded types are.
type Embedded struct {
	Inner string `json:"inner"`
}

func TestTheFieldsOfATypeAreThoseOfItsJSON(t *testing.T) {
	for name, test := range map[string]struct {
		of   any
		want []string
	}{
		"names, without their options": {struct {
			A string `json:"a"`
			B string `json:"b,omitempty"`
		}{}, []string{"a", "b"}},
		"what has no name in JSON is left out, and what comes after it is not": {struct {
			Hidden string `json:"-"`
			Bare   string
			A      string `json:"a"`
		}{}, []string{"a"}},
		"an embedded type without a tag": {struct {
			Embedded
			A string `json:"a"`
		}{}, []string{"inner", "a"}},
		"a named field that is inline": {struct {
			E Embedded `json:",inline"`
			A string   `json:"a"`
		}{}, []string{"inner", "a"}},
		"an embedded pointer that is inline": {struct {
			*Embedded `json:",inline"`
		}{}, []string{"inner"}},
		"an embedded type with a name is a field": {struct {
			Embedded `json:"e"`
		}{}, []string{"e"}},
	} {
		var got []string
		for _, f := range fieldsOf(reflect.TypeOf(test.of)) {
			got = append(got, f.name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

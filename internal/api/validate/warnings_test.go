package validate

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

func annotated(annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Annotations: annotations}
}

// unless returns the old object, or nil if there is none.
func unless[T any](created bool, old *T) *T {
	if created {
		return nil
	}
	return old
}

// A user who changes another field must not be warned again.
func TestAnnotationsWithoutEffectAreToldWhenTheyAreNew(t *testing.T) {
	settings := configured(t, "", "")
	for kind, c := range map[string]struct {
		name, want string
		warnings   func(now, before map[string]string, created bool) []string
	}{
		"a VMI": {
			v1.MemfdMemoryBackend, "nothing here needs a guest's memory to be a memfd",
			func(now, before map[string]string, created bool) []string {
				return VMIWarnings(&v1.VirtualMachineInstance{ObjectMeta: annotated(now)}, unless(created, &v1.VirtualMachineInstance{ObjectMeta: annotated(before)}), settings)
			},
		},
		"a VM": {
			v1.RestoreRunStrategy, "guests migrate within their cluster",
			func(now, before map[string]string, created bool) []string {
				return VMWarnings(&v1.VirtualMachine{ObjectMeta: annotated(now)}, unless(created, &v1.VirtualMachine{ObjectMeta: annotated(before)}), settings)
			},
		},
		"a migration": {
			v1.MigrationUtilityVolumesTimeoutSecondsAnnotation, "there are no utility volumes",
			func(now, before map[string]string, created bool) []string {
				return MigrationWarnings(&v1.VirtualMachineInstanceMigration{ObjectMeta: annotated(now)}, unless(created, &v1.VirtualMachineInstanceMigration{ObjectMeta: annotated(before)}))
			},
		},
		"a DataVolume": {
			layout.AnnContentType, "spec.contentType says it",
			func(now, before map[string]string, created bool) []string {
				return DataVolumeWarnings(&cdiv1.DataVolume{ObjectMeta: annotated(now)}, unless(created, &cdiv1.DataVolume{ObjectMeta: annotated(before)}))
			},
		},
		"the KubeVirt object": {
			layout.SkipBackupHooksAnnotation, "it is read of each VMI; set it in the templates of VMs",
			func(now, before map[string]string, created bool) []string {
				return KubeVirtWarnings(&v1.KubeVirt{ObjectMeta: annotated(now)}, unless(created, &v1.KubeVirt{ObjectMeta: annotated(before)}))
			},
		},
	} {
		set := map[string]string{c.name: "30", "example.com/mine": "yes"}
		want := []string{"metadata.annotations[" + c.name + "] has no effect: " + c.want}
		for when, got := range map[string][]string{
			"created with it":         c.warnings(set, nil, true),
			"it is added":             c.warnings(set, map[string]string{"example.com/mine": "yes"}, false),
			"it gets another value":   c.warnings(set, map[string]string{c.name: "60"}, false),
			"it stays, others change": append(c.warnings(set, map[string]string{c.name: "30"}, false), want...),
			"it goes":                 append(c.warnings(nil, set, false), want...),
		} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s: %s", kind, when, diff)
			}
		}
	}
}

// TestWhatHasNoEffectRefusesNothing: admission must not refuse a VMI because of an annotation that it calls
// ineffective, unless the same sentence says so.
func TestWhatHasNoEffectRefusesNothing(t *testing.T) {
	page, err := os.ReadFile("../../../docs/supported-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("\n## Annotations of a VirtualMachineInstance or of its template\n"))
	page, _, _ = bytes.Cut(page, []byte("\n## "))
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| warns ").FindAllSubmatch(page, -1)
	refused, settings := 0, configured(t, "", "")
	for _, row := range rows {
		name := string(row[1])
		for _, strategy := range []v1.StartStrategy{"", v1.StartStrategyPaused, lock.StartStrategy} {
			without := &v1.VirtualMachineInstance{}
			without.Spec.StartStrategy = new(strategy)
			vmi := without.DeepCopy()
			vmi.Annotations = map[string]string{name: "true"}
			said := VMIWarnings(vmi, nil, settings)
			if len(said) != 1 || !strings.Contains(said[0], name) {
				t.Errorf("%s: the warnings are %q", name, said)
				continue
			}
			if errs := VMI(vmi, settings); len(errs) > len(VMI(without, settings)) || len(VMIUpdate(vmi, without)) > 0 {
				refused++
				if !strings.Contains(said[0], "has no effect except that with startStrategy "+string(strategy)+", which asks for the contrary, it is refused: ") {
					t.Errorf("it is refused: %v, %v; and the warning is %q", errs, VMIUpdate(vmi, without), said)
				}
			}
		}
	}
	if len(rows) < 5 || refused != 1 {
		t.Errorf("of %d annotations %d are refused; was the page read?", len(rows), refused)
	}
}

// Where CDI serves DataVolumes, it judges their annotations.
func TestAnnotationsOfTemplatesForDataVolumesAreTold(t *testing.T) {
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{DataVolumeTemplates: []v1.DataVolumeTemplateSpec{
		{}, {ObjectMeta: annotated(map[string]string{layout.AnnContentType: "archive", layout.AnnImmediate: "true"})},
	}}}
	settings := configured(t, "", "")
	want := []string{"spec.dataVolumeTemplates[1].metadata.annotations[" + layout.AnnContentType + "] has no effect: spec.contentType says it"}
	if diff := cmp.Diff(want, VMWarnings(vm, nil, settings)); diff != "" {
		t.Error(diff)
	}
	settings.CDI = true
	if got := VMWarnings(vm, nil, settings); len(got) > 0 {
		t.Errorf("with CDI: %q", got)
	}
}

// A DataVolume from before a rule must still be changeable and deletable.
func TestADataVolumeKeepsAnAnnotationThatIsRefused(t *testing.T) {
	had := &cdiv1.DataVolume{ObjectMeta: annotated(map[string]string{cdiv1.AnnCheckStaticVolume: ""})}
	now := had.DeepCopy()
	now.Finalizers = []string{"example.com/mine"}
	if errs := DataVolume(now, had); len(errs) > 0 {
		t.Errorf("a finalizer is added: %v", errs)
	}
	if errs := DataVolume(had, &cdiv1.DataVolume{}); len(errs) != 1 {
		t.Errorf("the annotation alone is added: %v", errs)
	}
	now.DeletionTimestamp = new(metav1.Now())
	if errs := DataVolume(now, &cdiv1.DataVolume{}); len(errs) > 0 {
		t.Errorf("it is being deleted: %v", errs)
	}
}

// The spec says where the objects are that have to go first.
func TestASpecStaysWhileItsDataVolumeIsDeleted(t *testing.T) {
	had := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "disk"}}}}
	had.DeletionTimestamp = new(metav1.Now())
	now := had.DeepCopy()
	if errs := DataVolume(now, had); len(errs) > 0 {
		t.Errorf("nothing is changed: %v", errs)
	}
	now.Spec.Source.PVC.Namespace = "ns"
	if errs := DataVolume(now, had); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("the source is moved: %v", errs)
	}
}

// An object from before a rule must still be changeable.
func TestAKubeVirtObjectKeepsAnAnnotationThatIsRefused(t *testing.T) {
	had := &v1.KubeVirt{ObjectMeta: annotated(map[string]string{v1.VGADisplayForEFIGuestsX86Annotation: "true"})}
	now := had.DeepCopy()
	now.Spec.ImagePullPolicy = "Always"
	if errs := KubeVirt(now, had); len(errs) > 0 {
		t.Errorf("a change of its spec: %v", errs)
	}
	if errs := KubeVirt(had, &v1.KubeVirt{}); len(errs) != 1 {
		t.Errorf("the annotation alone is added: %v", errs)
	}
}

// KubeVirt stores such templates, and refuses their VMIs.
func TestATemplateWithoutMemoryIsStoredWithAWarning(t *testing.T) {
	settings := configured(t, "", "")
	const warning = "spec.template.spec.domain.memory.guest: no memory requested; set this or spec.template.spec.domain.resources.requests.memory: no guest can start without memory"
	for name, c := range map[string]struct {
		memory string
		typed  bool
		want   []string
	}{
		"none":                {want: []string{warning}},
		"room for more alone": {memory: "memory: {maxGuest: 2Gi}", want: []string{warning}},
		"the guest's":         {memory: "memory: {guest: 1Gi}"},
		"the pod's request":   {memory: "resources: {requests: {memory: 1Gi}}"},
		"the pod's limit":     {memory: "resources: {limits: {memory: 1Gi}}"},
		"an instance type's":  {typed: true},
	} {
		t.Run(name, func(t *testing.T) {
			vm, err := decode([]byte("spec: {runStrategy: Halted, template: {metadata: {labels: {a: b}}, spec: {domain: {" + c.memory + "}}}}"))
			if err != nil {
				t.Fatal(err)
			}
			if errs := VM(vm, nil, settings); len(errs) > 0 {
				t.Errorf("the VM is refused: %v", errs)
			}
			rs := &v1.VirtualMachineInstanceReplicaSet{Spec: v1.VirtualMachineInstanceReplicaSetSpec{
				Template: vm.Spec.Template, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			}}
			if c.typed {
				vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "t"}
			} else {
				if errs := ReplicaSet(rs, nil, settings); len(errs) > 0 {
					t.Errorf("the replica set is refused: %v", errs)
				}
				if diff := cmp.Diff(c.want, ReplicaSetWarnings(rs, nil, settings)); diff != "" {
					t.Errorf("the replica set: %s", diff)
				}
			}
			if diff := cmp.Diff(c.want, VMWarnings(vm, nil, settings)); diff != "" {
				t.Error(diff)
			}
			vmi := &v1.VirtualMachineInstance{Spec: *vm.Spec.Template.Spec.DeepCopy()}
			defaults.VMI(vmi, settings)
			refusal := ""
			if len(c.want) > 0 || c.typed {
				refusal = "spec.domain.memory.guest: Required value: no memory requested; set this or spec.domain.resources.requests.memory"
			}
			if got := errorText(VMI(vmi, settings)); got != refusal {
				t.Errorf("the VMI is refused with %q, want %q", got, refusal)
			}
		})
	}
}

func errorText(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

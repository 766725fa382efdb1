package vmpatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhatIsJudgedIsWhatIsApplied(t *testing.T) {
	for text, want := range map[string]string{
		`{"op":"copy","OP":"add","from":"/x","path":"/x/k1"}`:                        `has the operation "copy"`,
		`{"op":"copy","op":"add","from":"/spec","path":"/spec/x"}`:                   `says something twice: duplicate field "op"`,
		`{"op":"add","path":"/spec/x","path":"/metadata/uid","value":1}`:             `says something twice: duplicate field "path"`,
		`{"op":"add","path":"/spec","value":{"running":true,"running":false}}`:       `says something twice: duplicate field "value.running"`,
		`{"OP":"add","path":"/spec/x","value":1}`:                                    `has the operation "<nil>"`,
		`{"op":"add","pAth":"/spec/x","value":1}`:                                    `has the path "<nil>"`,
		`{"op":"add","path":"x/metadata/name","value":"a"}`:                          `has the path "x/metadata/name"; a path begins with a slash`,
		`{"op":"add","path":"","value":{}}`:                                          `has the path ""`,
		`{"op":"move","from":"/spec","path":"/spec/x"}`:                              `has the operation "move"; add, replace, remove and test`,
		`{"op":["add"],"path":"/spec/x","value":1}`:                                  `has the operation "[add]"`,
		`{"op":"add","path":"/spec/x","Value":1}`:                                    `has the operation add and no value`,
		`{"op":"add","path":"/spec/x","value":1},{"op":"copy","from":"/","path":""}`: `is no operation of a JSON patch`,
		`[{"op":"add","path":"/spec/x","value":1}]`:                                  `is no operation of a JSON patch`,
		`null`: `is no operation of a JSON patch`,
		``:     `is no operation of a JSON patch`,
	} {
		if got, err := Parse([]string{text}); err == nil || !strings.HasPrefix(err.Error(), "patch 1 "+want) {
			t.Errorf("%s: got %+v, %v; want %q", text, got, err, want)
		}
	}
}

func TestAllFaultsAreNamed(t *testing.T) {
	_, err := Parse([]string{"x", `{"op":"remove","path":"/spec/x"}`, `{"op":"copy","path":"/spec/x"}`})
	if err == nil || !strings.Contains(err.Error(), "patch 1 is no operation") || !strings.Contains(err.Error(), "\npatch 3 has the operation") {
		t.Error(err)
	}
}

func TestPatchesAreBounded(t *testing.T) {
	one := `{"op":"test","path":"/metadata/name","value":"vm"}`
	many := strings.Split(strings.Repeat(one+"\n", MaxPatches), "\n")[:MaxPatches]
	half := strings.Repeat(" ", MaxSize/2-len(one)) + one
	for name, texts := range map[string][]string{"as many as are allowed": many, "as large as is allowed": {half, half}} {
		if got, err := Parse(texts); err != nil || len(got) != len(texts) {
			t.Errorf("%s: %d, %v", name, len(got), err)
		}
	}
	for want, texts := range map[string][]string{
		fmt.Sprintf("there are %d patches of", MaxPatches+1):          append(many, one),
		fmt.Sprintf("there are 2 patches of %d bytes", 2*len(half)+1): {half, " " + half},
	} {
		if _, err := Parse(texts); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestOperationsAreWrittenAsTheyAreRead(t *testing.T) {
	texts := []string{
		`{"op":"add","path":"/spec/x","value":null}`,
		`{"op":"replace","path":"/spec/x","value":{"a":[1,2.5,"\u003c",true,9007199254740993]}}`,
		`{"op":"remove","path":"/spec/x"}`,
		`{"op":"test","path":"/spec/x","value":"y"}`,
	}
	operations, err := Parse(texts)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Texts(operations)
	if diff := cmp.Diff(texts, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	// Fields that an operation does not define must not be stored.
	if operations, err = Parse([]string{`{"op":"remove","OP":"copy","from":"/a","path":"/b","value":1}`}); err != nil {
		t.Fatal(err)
	}
	if got, err := Texts(operations); err != nil || got[0] != `{"op":"remove","path":"/b"}` {
		t.Error(got, err)
	}
}

func TestApply(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"a": "b"}}}
	operation := func(op, path string, value any) []Operation { return []Operation{{op, path, value}} }
	got, err := Apply(vm, append(operation("add", "/metadata/labels/x~1y", "z"), operation("remove", "/metadata/labels/a", nil)...))
	if diff := cmp.Diff(map[string]string{"x/y": "z"}, got.Labels); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := Apply(vm, nil); err != nil || got == vm || got.Name != "vm" {
		t.Errorf("without patches it is %+v, %v", got, err)
	}
	for want, operations := range map[string][]Operation{
		"applying the patches to the VM of the snapshot":                                                operation("replace", "/spec/nothing/x", 1),
		"the patches make no VirtualMachine":                                                            operation("replace", "/spec", "x"),
		`the patches set what a VirtualMachine does not have: unknown field "spec.nothing"`:             operation("replace", "/spec/nothing", 1),
		`the patches set what a VirtualMachine does not have: unknown field "metadata.Name"`:            operation("add", "/metadata/Name", "other"),
		`the patches set what a VirtualMachine does not have: in spec.template.spec: unknown field "x"`: operation("add", "/spec/template", map[string]any{"spec": map[string]any{"x": 1}}),
	} {
		if _, err := Apply(vm, operations); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A replace sets an unset field, but only an existing element of a list.
func TestAReplaceSetsWhatIsUnset(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"a": "b"}},
		Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "one"}, {Name: "two"}}
	const nics = "/spec/template/spec/domain/devices/interfaces"
	got, err := Apply(vm, []Operation{
		{"replace", nics + "/0/macAddress", "02:00:00:00:00:02"}, {"replace", nics + "/1", map[string]any{"name": "other"}},
		{"replace", "/spec/template/metadata/labels", map[string]any{}}, {"replace", "/spec/template/metadata/labels/x", "y"},
		{"replace", "/metadata/labels/a", "c"}, {"replace", "/spec/runStrategy", "Halted"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := vm.DeepCopy()
	want.Labels, want.Spec.RunStrategy = map[string]string{"a": "c"}, new(v1.RunStrategyHalted)
	want.Spec.Template.ObjectMeta.Labels = map[string]string{"x": "y"}
	want.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "one", MacAddress: "02:00:00:00:00:02"}, {Name: "other"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{nics + "/2", nics + "/-", nics + "/5/macAddress"} {
		if got, err := Apply(vm, []Operation{{"replace", path, map[string]any{"name": "x"}}}); err == nil {
			t.Errorf("%s: got %+v", path, got.Spec.Template.Spec.Domain.Devices.Interfaces)
		}
	}
}

// Only the API decides whether a number is a name or an index.
func TestANumberMayBeAName(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"a": "b"}},
		Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "one"}}
	const nics, template = "/spec/template/spec/domain/devices/interfaces", "/spec/template/metadata/annotations"
	got, err := Apply(vm, []Operation{
		{"replace", "/metadata/labels/7", "seven"}, {"replace", "/metadata/labels/7", "again"}, {"replace", "/metadata/labels/example.com~18", "eight"},
		{"replace", template, map[string]any{}}, {"replace", template + "/-1", "x"}, {"replace", template + "/-", "y"},
		{"add", nics + "/-", map[string]any{"name": "two"}}, {"replace", nics + "/-1", map[string]any{"name": "last"}},
		{"replace", nics + "/0", map[string]any{"name": "first"}},
		{"replace", "/spec/template/spec/nodeSelector", map[string]any{}}, {"replace", "/spec/template/spec/nodeSelector/0", "z"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := vm.DeepCopy()
	want.Labels = map[string]string{"a": "b", "7": "again", "example.com/8": "eight"}
	want.Spec.Template.ObjectMeta.Annotations = map[string]string{"-1": "x", "-": "y"}
	want.Spec.Template.Spec.NodeSelector = map[string]string{"0": "z"}
	want.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "first"}, {Name: "last"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/spec/nothing/7", nics + "/5/7", nics + "/x/7", "/metadata/name/7"} {
		if got, err := Apply(vm, []Operation{{"replace", path, "x"}}); err == nil {
			t.Errorf("%s: got %+v", path, got)
		}
	}
}

package vmlifecycle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/firmware"
)

// templatePath is where the compared specs are in a VM.
const templatePath = "spec.template.spec"

// RevisionName names the ControllerRevision that keeps the template that a VMI
// is made from. It follows from the template, so that a restart without a
// change makes no new one (decision 071).
func RevisionName(vm *v1.VirtualMachine) string {
	return fmt.Sprintf("revision-start-vm-%s-%s", vm.UID, layout.HexDigest(string(mustMarshal(templateSpec(vm))), 10))
}

// NewRevision is that ControllerRevision.
func NewRevision(vm *v1.VirtualMachine) *appsv1.ControllerRevision {
	template := &v1.VirtualMachineInstanceTemplateSpec{Spec: *templateSpec(vm)}
	return &appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Name: RevisionName(vm), Namespace: vm.Namespace,
			Labels:          map[string]string{RevisionLabel: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: runtime.RawExtension{Raw: mustMarshal(&v1.VirtualMachineSpec{Template: template})},
	}
}

// RevisionLabel on a ControllerRevision holds the VM's UID.
const RevisionLabel = "kubevirt.io/vm-uid"

// StartedFrom reads the template's spec from a ControllerRevision.
func StartedFrom(r *appsv1.ControllerRevision) (*v1.VirtualMachineInstanceSpec, error) {
	var spec v1.VirtualMachineSpec
	if err := json.Unmarshal(r.Data.Raw, &spec); err != nil {
		return nil, fmt.Errorf("reading the ControllerRevision %s: %w", r.Name, err)
	}
	if spec.Template == nil {
		return nil, fmt.Errorf("reading the ControllerRevision %s: it holds no template", r.Name)
	}
	return &spec.Template.Spec, nil
}

// templateSpec is the template's spec with the UUID that it counts as having.
func templateSpec(vm *v1.VirtualMachine) *v1.VirtualMachineInstanceSpec {
	spec := vm.Spec.Template.Spec.DeepCopy()
	if firmware.Missing(spec) {
		firmware.Set(spec, firmware.Legacy(vm.Name))
	}
	return spec
}

// Changes lists the paths of the fields in which two templates of a VM differ,
// sorted. Elements of lists are told apart by their names where they have one.
func Changes(from, to *v1.VirtualMachineInstanceSpec, vmName string) []string {
	normal := func(spec *v1.VirtualMachineInstanceSpec) any {
		vm := &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Name: vmName},
			Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: *spec}},
		}
		var tree any
		if err := json.Unmarshal(mustMarshal(templateSpec(vm)), &tree); err != nil {
			panic(fmt.Sprintf("what was encoded does not decode: %v", err))
		}
		return tree
	}
	var paths []string
	compare(templatePath, normal(from), normal(to), &paths)
	slices.Sort(paths)
	return paths
}

// compare appends the deepest paths in which a and b differ.
func compare(path string, a, b any, paths *[]string) {
	if reflect.DeepEqual(a, b) {
		return
	}
	left, leftKeys := children(a)
	right, rightKeys := children(b)
	if left == nil || right == nil {
		*paths = append(*paths, path)
		return
	}
	before := len(*paths)
	for _, key := range union(leftKeys, rightKeys) {
		compare(path+key, left[key], right[key], paths)
	}
	if len(*paths) == before {
		// The same elements in another order.
		*paths = append(*paths, path)
	}
}

// children gives the fields of an object or the elements of a list by the
// piece of path that leads to them; nil for a plain value.
func children(value any) (byKey map[string]any, keys []string) {
	switch v := value.(type) {
	case map[string]any:
		byKey = make(map[string]any, len(v))
		for name, field := range v {
			byKey["."+name] = field
		}
	case []any:
		byKey = make(map[string]any, len(v))
		for i, element := range v {
			byKey[elementKey(i, element)] = element
		}
	default:
		return nil, nil
	}
	for key := range byKey {
		keys = append(keys, key)
	}
	return byKey, keys
}

func elementKey(i int, element any) string {
	if fields, ok := element.(map[string]any); ok {
		if name, ok := fields["name"].(string); ok {
			return "[" + name + "]"
		}
	}
	return fmt.Sprintf("[%d]", i)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, strings.Compare)
	return slices.Compact(all)
}

// mustMarshal encodes an API type, which cannot fail.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return data
}

package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
)

const templatePath = "spec.template.spec"

// Paths returns the sorted paths at which two templates differ. A list element's name identifies it, if it has one.
func Paths(from, to *v1.VirtualMachineInstanceSpec, vmName string) []string {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	normal := func(spec *v1.VirtualMachineInstanceSpec) any {
		if firmware.Missing(spec) {
			spec = spec.DeepCopy()
			firmware.Set(spec, firmware.Legacy(vmName))
		}
		text, err := json.Marshal(spec)
		var tree any
		if err == nil {
			err = json.Unmarshal(text, &tree)
		}
		if err != nil {
			panic(fmt.Sprintf("a spec does not encode and decode: %v", err))
		}
		return tree
	}
	var paths []string
	compare(templatePath, normal(from), normal(to), &paths)
	slices.Sort(paths)
	return paths
}

// compare appends the deepest paths at which a and b differ.
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
	keys := slices.Concat(leftKeys, rightKeys)
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		compare(path+key, left[key], right[key], paths)
	}
	if len(*paths) == before {
		// The same elements have another order.
		*paths = append(*paths, path)
	}
}

// children returns the fields of an object or the elements of a list by their path segment, nil for a plain value.
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

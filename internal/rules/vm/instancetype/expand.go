package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

var (
	specPath       = field.NewPath("spec")
	typePath       = specPath.Child("instancetype")
	preferencePath = specPath.Child("preference")
	templatePath   = specPath.Child("template")
	vmiPath        = templatePath.Child("spec")
)

// Used are the type and the preference of a VM, nil for none.
type Used struct {
	Type, Preference *Source
}

// Expand returns the VM with its type and preference applied, or all conflicts and no VM. binding is that of the pod
// network's interface in a VM that lists no network.
func Expand(vm *v1.VirtualMachine, used Used, binding string) (*v1.VirtualMachine, field.ErrorList) {
	out := vm.DeepCopy()
	out.Spec.Instancetype, out.Spec.Preference = nil, nil
	if used.Type == nil && used.Preference == nil {
		return out, nil
	}
	if out.Spec.Template == nil {
		return nil, field.ErrorList{field.Required(templatePath, "a VirtualMachine needs a template")}
	}
	if errs := usable(used); len(errs) > 0 {
		return nil, errs
	}
	var errs field.ErrorList
	if t := used.Type; t != nil {
		errs = applyType(out.Spec.Template, t.deepCopy(), topologyOf(used.Preference))
		errs = append(errs, spreads(used)...)
	}
	if p := used.Preference; p != nil {
		applyPreference(out, p.deepCopy().Preference, binding)
		errs = append(errs, requirements(&out.Spec.Template.Spec, used)...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}

// A revision may have any content.
func usable(used Used) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		source *Source
		path   *field.Path
	}{{used.Type, typePath}, {used.Preference, preferencePath}} {
		if part.source == nil {
			continue
		}
		for _, err := range part.source.Check() {
			errs = append(errs, field.Forbidden(part.path, fmt.Sprintf("%s can't be used: %s", part.source, err)))
		}
	}
	return errs
}

func set[T comparable](to *T, value T) {
	var none T
	if *to == none {
		*to = value
	}
}

func need[T any](to **T) *T {
	if *to == nil {
		*to = new(T)
	}
	return *to
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// Where a VM says what it is made from, and what is made from it.
var (
	specPath       = field.NewPath("spec")
	typePath       = specPath.Child("instancetype")
	preferencePath = specPath.Child("preference")
	templatePath   = specPath.Child("template")
	vmiPath        = templatePath.Child("spec")
)

// Used are the type and the preference that a VM is made from, nil for none.
type Used struct {
	Type, Preference *Source
}

// Expand makes of a VM the VM that says by itself what its type and its preference say. binding is the binding of the
// pod network's interface in a VM that lists no network. It gives back every conflict, and then no VM.
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

// usable refuses a type or a preference that is not well-formed: a revision may hold anything.
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

// set fills in a value where there is none.
func set[T comparable](to *T, value T) {
	var none T
	if *to == none {
		*to = value
	}
}

// need makes sure that there is something to fill in.
func need[T any](to **T) *T {
	if *to == nil {
		*to = new(T)
	}
	return *to
}

// value is what a pointer points to, nothing for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

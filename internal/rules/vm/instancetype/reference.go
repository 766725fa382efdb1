package instancetype

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
)

// Kinds of types and preferences.
const (
	KindType              = "VirtualMachineInstancetype"
	KindClusterType       = "VirtualMachineClusterInstancetype"
	KindPreference        = "VirtualMachinePreference"
	KindClusterPreference = "VirtualMachineClusterPreference"
)

// names are a kind's names in a VM, in lower case.
var names = map[string][]string{
	KindType:              {instancetypeapi.SingularResourceName, instancetypeapi.PluralResourceName},
	KindClusterType:       {instancetypeapi.ClusterSingularResourceName, instancetypeapi.ClusterPluralResourceName},
	KindPreference:        {instancetypeapi.SingularPreferenceResourceName, instancetypeapi.PluralPreferenceResourceName},
	KindClusterPreference: {instancetypeapi.ClusterSingularPreferenceResourceName, instancetypeapi.ClusterPluralPreferenceResourceName},
}

// Role is a kind of reference: to a type, or to a preference.
type Role struct {
	// The last of kinds is the default.
	kinds []string
	path  *field.Path
	what  string
	// label is a volume's label with the default, kindLabel that with its kind.
	label, kindLabel string
}

// The two roles.
var (
	TypeRole = Role{
		kinds: []string{KindType, KindClusterType}, path: typePath, what: "instance type",
		label: instancetypeapi.DefaultInstancetypeLabel, kindLabel: instancetypeapi.DefaultInstancetypeKindLabel,
	}
	PreferenceRole = Role{
		kinds: []string{KindPreference, KindClusterPreference}, path: preferencePath, what: "preference",
		label: instancetypeapi.DefaultPreferenceLabel, kindLabel: instancetypeapi.DefaultPreferenceKindLabel,
	}
)

// Reference is a VM's reference to its type or preference.
type Reference struct {
	Role
	// A preference's matcher has the same fields.
	v1.InstancetypeMatcher
	// Status is the VM's status entry for it, nil for none.
	Status *v1.InstancetypeStatusRef
}

// References returns a VM's references; nil for none.
func References(vm *v1.VirtualMachine) (toType, toPreference *Reference) {
	if m := vm.Spec.Instancetype; m != nil {
		toType = &Reference{Role: TypeRole, InstancetypeMatcher: *m, Status: vm.Status.InstancetypeRef}
	}
	if m := vm.Spec.Preference; m != nil {
		toPreference = &Reference{Role: PreferenceRole, InstancetypeMatcher: v1.InstancetypeMatcher(*m), Status: vm.Status.PreferenceRef}
	}
	return toType, toPreference
}

// Refers reports whether a VM has a type or a preference.
func Refers(vm *v1.VirtualMachine) bool {
	return vm.Spec.Instancetype != nil || vm.Spec.Preference != nil
}

// KindOf returns the kind, "" if unknown.
func (r *Reference) KindOf() string {
	if r.Kind == "" {
		return r.kinds[len(r.kinds)-1]
	}
	for _, kind := range r.kinds {
		if slices.Contains(names[kind], strings.ToLower(r.Kind)) {
			return kind
		}
	}
	return ""
}

// Namespaced reports whether the reference is to an object in the VM's namespace, not a cluster-wide one.
func (r *Reference) Namespaced() bool { return r.KindOf() == r.kinds[0] }

// Path returns the path of the reference in the VM.
func (r *Reference) Path() *field.Path { return r.path }

func (r *Reference) String() string {
	return fmt.Sprintf("the %s %s (%s)", r.what, r.Name, r.KindOf())
}

// Revision returns the name of the VM's effective revision, "" while none is kept: then the current
// type or preference is effective.
func (r *Reference) Revision() string {
	if r.RevisionName != "" {
		return r.RevisionName
	}
	if s := r.Status; s != nil && s.Name == r.Name && s.Kind == r.KindOf() {
		return RevisionOf(s)
	}
	return ""
}

// Check returns the errors of the reference.
func (r *Reference) Check() field.ErrorList {
	var errs field.ErrorList
	switch {
	case r.InferFromVolume != "" && (r.Name != "" || r.Kind != ""):
		errs = append(errs, field.Forbidden(r.path.Child("inferFromVolume"), "name and kind are inferred from the volume; give one or the other"))
	case r.InferFromVolume == "" && r.Name == "":
		errs = append(errs, field.Required(r.path.Child("name"), fmt.Sprintf("name the %s, or the volume to infer it from", r.what)))
	case r.KindOf() == "":
		errs = append(errs, field.NotSupported(r.path.Child("kind"), r.Kind, r.kinds))
	}
	if p := r.InferFromVolumeFailurePolicy; p != nil && *p != v1.RejectInferFromVolumeFailure && *p != v1.IgnoreInferFromVolumeFailure {
		errs = append(errs, field.NotSupported(r.path.Child("inferFromVolumeFailurePolicy"), *p,
			[]v1.InferFromVolumeFailurePolicy{v1.IgnoreInferFromVolumeFailure, v1.RejectInferFromVolumeFailure}))
	}
	return errs
}

// Complete sets missing kinds, in KubeVirt's lower case, and removes a former reference's revision. old is nil for a
// new VM. Invalid references stay, and are refused later.
func Complete(vm, old *v1.VirtualMachine) {
	var typeBefore, preferenceBefore *Reference
	if old != nil {
		typeBefore, preferenceBefore = References(old)
	}
	toType, toPreference := References(vm)
	if toType != nil {
		toType.complete(typeBefore)
		*vm.Spec.Instancetype = toType.InstancetypeMatcher
	}
	if toPreference != nil {
		toPreference.complete(preferenceBefore)
		*vm.Spec.Preference = v1.PreferenceMatcher(toPreference.InstancetypeMatcher)
	}
}

func (r *Reference) complete(before *Reference) {
	if r.InferFromVolume == "" && r.Kind == "" && r.Name != "" {
		r.Kind = names[r.KindOf()][0]
	}
	other := before != nil && (before.Name != r.Name || before.KindOf() != r.KindOf())
	if other && before.RevisionName == r.RevisionName {
		r.RevisionName = ""
	}
}

package instancetype

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
)

// Kinds of what a VM refers to.
const (
	KindType              = "VirtualMachineInstancetype"
	KindClusterType       = "VirtualMachineClusterInstancetype"
	KindPreference        = "VirtualMachinePreference"
	KindClusterPreference = "VirtualMachineClusterPreference"
)

// names are what a kind may be called in a VM, in lower case.
var names = map[string][]string{
	KindType:              {instancetypeapi.SingularResourceName, instancetypeapi.PluralResourceName},
	KindClusterType:       {instancetypeapi.ClusterSingularResourceName, instancetypeapi.ClusterPluralResourceName},
	KindPreference:        {instancetypeapi.SingularPreferenceResourceName, instancetypeapi.PluralPreferenceResourceName},
	KindClusterPreference: {instancetypeapi.ClusterSingularPreferenceResourceName, instancetypeapi.ClusterPluralPreferenceResourceName},
}

// Role is what a reference is to.
type Role struct {
	// kinds are those that it may be to; the last one is meant where none is named.
	kinds []string
	path  *field.Path
	what  string
	// The labels of a volume that say the default, and its kind.
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

// Reference is what a VM says of its type or its preference.
type Reference struct {
	Role
	// Matcher is the VM's; one to a preference has the same fields.
	v1.InstancetypeMatcher
	// Status is what the VM's status says of it, nil for nothing.
	Status *v1.InstancetypeStatusRef
}

// References are those of a VM, of the type first; nil for one that it does not have.
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

// KindOf is the kind that a reference is to, "" when it names none that it could be to.
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

// Namespaced reports whether what it is to is in the VM's namespace, and not the cluster's.
func (r *Reference) Namespaced() bool { return r.KindOf() == r.kinds[0] }

// Path is where the VM has it.
func (r *Reference) Path() *field.Path { return r.path }

// String names what it is to.
func (r *Reference) String() string {
	return fmt.Sprintf("the %s %s (%s)", r.what, r.Name, r.KindOf())
}

// Revision is the name of the revision that the VM is to go by, "" while none is kept: then it goes by what the type, or
// the preference, is.
func (r *Reference) Revision() string {
	if r.RevisionName != "" {
		return r.RevisionName
	}
	if s := r.Status; s != nil && s.Name == r.Name && s.Kind == r.KindOf() {
		return RevisionOf(s)
	}
	return ""
}

// Check refuses a reference that is to nothing.
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

// Complete fills in the kinds that a VM's references lack, in the lower case that KubeVirt writes, and forgets the revision
// of an earlier reference; old is nil when the VM is being created. Wrong references stay, to be refused.
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

package commontypes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

// Plan is what is to be done about the objects of a kind that a cluster has.
//
//	wanted  there                              then
//	yes     no                                 create
//	yes     as Drydock wrote it, another spec  update
//	no      as Drydock wrote it                delete
//	any     changed since, or somebody else's  nothing
//
// An object is somebody else's without Drydock's vendor label, and was changed when what it has is not what its digest
// says. Labels and annotations that Drydock does not write change nothing.
type Plan[T metav1.Object] struct {
	Create, Update, Delete []T
	// Changed are the names of objects that are left as somebody has made them of Drydock's.
	Changed []string
}

// PlanInstancetypes plans for the instance types with Drydock's label. enabled says whether the bundle is wanted at all.
func PlanInstancetypes(enabled bool, there []*instancetypev1.VirtualMachineClusterInstancetype) Plan[*instancetypev1.VirtualMachineClusterInstancetype] {
	return plan(wanted(enabled, Instancetypes), there,
		func(object *instancetypev1.VirtualMachineClusterInstancetype) any { return &object.Spec },
		func(to, from *instancetypev1.VirtualMachineClusterInstancetype) { to.Spec = from.Spec })
}

// PlanPreferences is PlanInstancetypes for preferences.
func PlanPreferences(enabled bool, there []*instancetypev1.VirtualMachineClusterPreference) Plan[*instancetypev1.VirtualMachineClusterPreference] {
	return plan(wanted(enabled, Preferences), there,
		func(object *instancetypev1.VirtualMachineClusterPreference) any { return &object.Spec },
		func(to, from *instancetypev1.VirtualMachineClusterPreference) { to.Spec = from.Spec })
}

func wanted[T metav1.Object](enabled bool, all func() []T) []T {
	if !enabled {
		return nil
	}
	return all()
}

func plan[T metav1.Object](wanted, there []T, spec func(T) any, setSpec func(to, from T)) Plan[T] {
	var out Plan[T]
	have := map[string]bool{}
	want := map[string]T{}
	for _, object := range wanted {
		want[object.GetName()] = object
	}
	for _, object := range there {
		if object.GetLabels()[VendorLabel] != Vendor {
			continue
		}
		have[object.GetName()] = true
		written := object.GetAnnotations()[ContentAnnotation]
		replacement, isWanted := want[object.GetName()]
		switch {
		case object.GetDeletionTimestamp() != nil:
		case written != digest(object, spec(object)):
			out.Changed = append(out.Changed, object.GetName())
		case !isWanted:
			out.Delete = append(out.Delete, object)
		case written != replacement.GetAnnotations()[ContentAnnotation]:
			setSpec(object, replacement)
			takeOver(object, replacement)
			out.Update = append(out.Update, object)
		}
	}
	for _, object := range wanted {
		if !have[object.GetName()] {
			out.Create = append(out.Create, object)
		}
	}
	return out
}

// takeOver gives an object the labels and annotations that Drydock writes and leaves it the others.
func takeOver(to, from metav1.Object) {
	to.SetLabels(replaced(to.GetLabels(), from.GetLabels()))
	to.SetAnnotations(replaced(to.GetAnnotations(), from.GetAnnotations()))
}

func replaced(old, written map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range old {
		if !ours(key) {
			out[key] = value
		}
	}
	for key, value := range written {
		out[key] = value
	}
	return out
}

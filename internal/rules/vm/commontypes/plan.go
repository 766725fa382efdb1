package commontypes

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

// Plan lists the changes of a cluster's objects of one kind.
//
//	in the bundle  in the cluster, by the name      action
//	yes            nothing                          create
//	yes            as Drydock wrote it              nothing
//	yes            as an earlier version wrote it   update
//	no             as Drydock wrote it              delete
//	yes            changed by somebody since        nothing, reported
//	yes            somebody else's                  nothing, reported
//	no             anything else                    nothing
//	any            being deleted                    nothing: its end starts a new plan
//
// A disabled bundle is empty. An object without Drydock's vendor label is somebody else's. A changed object differs from
// its digest, which covers the name: a copy under another name is not Drydock's. Labels and annotations that Drydock does
// not write don't count (decision 580).
type Plan[T metav1.Object] struct {
	Create, Update, Delete []T
	// Changed and Others are names of the bundle whose objects somebody has changed or created. They stay as they are.
	Changed, Others []string
}

const named = 10

// Left describes the objects that stay as they are and how to restore Drydock's; "" for none.
func (p Plan[T]) Left() string {
	var parts []string
	if len(p.Changed) > 0 {
		parts = append(parts, "left as somebody has changed them: "+names(p.Changed))
	}
	if len(p.Others) > 0 {
		parts = append(parts, "left as others have made them: "+names(p.Others))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(append(parts, "delete those that are to be as they come with Drydock"), "; ")
}

func names(all []string) string {
	if len(all) <= named {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), len(all)-named)
}

// PlanInstancetypes plans for the cluster's instance types, and may modify those in there.
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
		have[object.GetName()] = true
		written := object.GetAnnotations()[ContentAnnotation]
		replacement, isWanted := want[object.GetName()]
		others := object.GetLabels()[VendorLabel] != Vendor
		changed := others || written != digest(object, spec(object))
		switch {
		case object.GetDeletionTimestamp() != nil, changed && !isWanted:
		case others:
			out.Others = append(out.Others, object.GetName())
		case changed:
			out.Changed = append(out.Changed, object.GetName())
		case !isWanted:
			out.Delete = append(out.Delete, object)
		case written != replacement.GetAnnotations()[ContentAnnotation]:
			setSpec(object, replacement)
			object.SetLabels(replaced(object.GetLabels(), replacement.GetLabels()))
			object.SetAnnotations(replaced(object.GetAnnotations(), replacement.GetAnnotations()))
			out.Update = append(out.Update, object)
		}
	}
	for _, object := range wanted {
		if !have[object.GetName()] {
			out.Create = append(out.Create, object)
		}
	}
	slices.Sort(out.Changed)
	slices.Sort(out.Others)
	return out
}

// replaced keeps labels and annotations that Drydock does not write.
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

package components

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// ReplacedAnnotation holds the other managers' values that Manager has overwritten. One request writes both.
const ReplacedAnnotation = "drydock.dev/replaced-by-kubevirt-object"

// No manager owns these fields.
var whatItIs = fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"))

// Object is an API object of a Go type.
type Object interface {
	metav1.Object
	runtime.Object
}

type planner struct {
	kind  schema.GroupVersionKind
	types managedfields.TypeConverter
	empty runtime.Object
}

// plan returns the apply configuration, for exactly this version of the object, that applies change to the object as
// other managers have made it; nil if it already is so.
//
//	live = other managers' fields + Manager's fields
//	base = live - Manager's fields + replaced values
//	to apply = the differences that change makes to base + values replaced earlier
//
// Manager keeps a replaced field, with the other managers' value, until they write it themselves: if Manager gave it
// up, the API server would remove it.
func plan(live Object, empty runtime.Object, kind schema.GroupVersionKind, types managedfields.TypeConverter, change func(runtime.Object) error) (*unstructured.Unstructured, error) {
	p := planner{kind: kind, types: types, empty: empty}
	now, err := p.typed(live)
	if err != nil {
		return nil, err
	}
	mine, alone, err := owned(live)
	if err != nil {
		return nil, err
	}
	earlier, err := p.replaced(live, alone)
	if err != nil {
		return nil, err
	}
	before, err := now.RemoveItems(alone).Merge(earlier)
	if err != nil {
		return nil, fmt.Errorf("finding out what the manifests say: %w", err)
	}
	base, after, err := p.change(before, change)
	if err != nil {
		return nil, err
	}
	want, err := p.difference(base, after, earlier, alone)
	if err != nil {
		return nil, err
	}
	had, err := now.ExtractItems(mine, typed.WithAppendKeyFields()).Compare(want)
	if err != nil {
		return nil, fmt.Errorf("comparing with what was applied: %w", err)
	}
	if had.ExcludeFields(whatItIs).IsSame() {
		return nil, nil
	}
	fields, err := p.content(want)
	if err != nil {
		return nil, fmt.Errorf("writing what is to be applied: %w", err)
	}
	out := p.object(fields)
	out.SetName(live.GetName())
	out.SetNamespace(live.GetNamespace())
	out.SetUID(live.GetUID())
	out.SetResourceVersion(live.GetResourceVersion())
	return out, nil
}

// difference returns the fields of after that differ from base, with the record of the values they replace.
func (p planner) difference(base, after, earlier *typed.TypedValue, alone *fieldpath.Set) (*typed.TypedValue, error) {
	changes, err := base.Compare(after)
	if err != nil {
		return nil, fmt.Errorf("comparing with what the manifests say: %w", err)
	}
	if gone := paths(changes.Removed); len(gone) > 0 {
		return nil, fmt.Errorf("the KubeVirt object can't remove %s, only change it", gone[0])
	}
	there, err1 := base.ToFieldSet()
	all, err2 := after.ToFieldSet()
	kept, err3 := earlier.ToFieldSet()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("listing the fields: %w", err)
	}
	// Additions below a new field count by their own fields.
	added := all.Difference(there)
	if err := permit(added, changes.Modified); err != nil {
		return nil, err
	}
	replaced := changes.Modified.Union(kept.Intersection(alone))
	want := after.ExtractItems(added.Union(replaced), typed.WithAppendKeyFields())
	if replaced.Empty() {
		return want, nil
	}
	record, err := p.content(base.ExtractItems(replaced, typed.WithAppendKeyFields()))
	if err != nil {
		return nil, fmt.Errorf("keeping what is replaced: %w", err)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("keeping what is replaced: %w", err)
	}
	note, err := p.types.ObjectToTyped(p.object(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{ReplacedAnnotation: string(text)}},
	}))
	if err != nil {
		return nil, fmt.Errorf("keeping what is replaced: %w", err)
	}
	return want.Merge(note)
}

func (p planner) change(before *typed.TypedValue, change func(runtime.Object) error) (base, after *typed.TypedValue, err error) {
	fields, err := p.content(before)
	if err != nil {
		return nil, nil, fmt.Errorf("reading what the manifests say: %w", err)
	}
	object := p.empty.DeepCopyObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, object); err != nil {
		return nil, nil, fmt.Errorf("reading what the manifests say: %w", err)
	}
	if base, err = p.typed(object); err != nil {
		return nil, nil, err
	}
	if err := change(object); err != nil {
		return nil, nil, err
	}
	after, err = p.typed(object)
	return base, after, err
}

// replaced reads the replaced values that nobody has written since.
func (p planner) replaced(live Object, alone *fieldpath.Set) (*typed.TypedValue, error) {
	fields := map[string]any{}
	if text := live.GetAnnotations()[ReplacedAnnotation]; text != "" {
		// A spoilt record stops nothing.
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			fields = map[string]any{}
		}
	}
	record, err := p.types.ObjectToTyped(p.object(fields))
	if err != nil {
		record, err = p.types.ObjectToTyped(p.object(nil))
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was replaced: %w", err)
	}
	return record.ExtractItems(alone, typed.WithAppendKeyFields()), nil
}

// typed returns an object without the fields that the API server writes itself.
func (p planner) typed(object runtime.Object) (*typed.TypedValue, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", p.kind.Kind, err)
	}
	delete(fields, "status")
	meta := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if value, found, err := unstructured.NestedFieldNoCopy(fields, "metadata", key); found && err == nil {
			meta[key] = value
		}
	}
	fields["metadata"] = meta
	unstructured.RemoveNestedField(fields, "spec", "template", "metadata", "creationTimestamp")
	value, err := p.types.ObjectToTyped(p.object(fields))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", p.kind.Kind, err)
	}
	return value, nil
}

func (p planner) object(fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(object.Object, fields)
	object.SetGroupVersionKind(p.kind)
	return object
}

func (p planner) content(value *typed.TypedValue) (map[string]any, error) {
	out := map[string]any{}
	if value.AsValue().IsNull() {
		return out, nil
	}
	object, err := p.types.TypedToObject(value)
	if err != nil {
		return nil, err
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		maps.Copy(out, u.Object)
	}
	delete(out, "kind")
	delete(out, "apiVersion")
	return out, nil
}

func paths(set *fieldpath.Set) []string {
	var all []string
	set.Iterate(func(path fieldpath.Path) { all = append(all, path.String()) })
	slices.Sort(all)
	return all
}

// owned returns the fields that Manager has applied, and those of them that it alone owns.
func owned(live metav1.Object) (mine, alone *fieldpath.Set, err error) {
	mine, others := fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range live.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, nil, fmt.Errorf("reading the fields of manager %q: %w", entry.Manager, err)
		}
		if entry.Manager == Manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			mine = mine.Union(fields)
		} else {
			others = others.Union(fields)
		}
	}
	return mine, mine.Difference(others), nil
}

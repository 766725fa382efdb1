// Package supported holds the one table of which fields of Drydock's kinds, and which annotations
// of KubeVirt's, are supported. Admission refuses an object that sets any other, so that nothing
// in a manifest is silently ignored (decision 061), and warns of those that only tune an
// installation and have no effect here (decision 500); docs/supported-fields.md is generated from
// it; and a test holds it against the types of the API module, so that a field
// that is new there can't slip through.
//
// It is pure. It decides whether a field is supported, not whether its value makes
// sense: package validate does.
package supported

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
)

// NotSupported is what is said of a field that Drydock does not implement.
const NotSupported = "not supported by Drydock"

// entry says what a field means to Drydock. An entry covers all that is below
// its field.
type entry struct {
	// yes is whether the field is supported, with any value unless only lists
	// values; those are compared as text. A field that is not supported may
	// still be set to what only lists.
	yes  bool
	only []string
	// idle says that the field is accepted without effect, but for the values that only lists, and that admission
	// warns of it; idleValues are values of which that is true.
	idle       bool
	idleValues []string
	// except is the one thing that an idle field is judged for all the same, as a clause.
	except string
	// note is for the documentation: a condition, or what to use instead.
	note string
}

// table says it for every field by its path, which has no indices:
// domain.devices.disks.name.
type table map[string]entry

func yes() entry                  { return entry{yes: true} }
func noted(note string) entry     { return entry{yes: true, note: note} }
func only(values ...string) entry { return entry{yes: true, only: values} }

// off is a feature that is not supported, in a field that can also say so: false.
func off() entry { return entry{only: []string{"false"}} }

// no is a field that is refused, with the reason and what to write instead.
func no(reason string) entry           { return entry{note: reason} }
func (e entry) because(n string) entry { e.note = n; return e }

// idle is a field that has no effect and changes neither what a guest is, nor what it can reach, nor its data: it is
// accepted with a warning, which gives the reason.
func idle(reason string) entry { return entry{yes: true, idle: true, note: reason} }

// withOnly are values that need no warning.
func (e entry) withOnly(values ...string) entry {
	e.only = values
	return e
}

// exceptThat names what an idle field is judged for all the same.
func (e entry) exceptThat(clause string) entry {
	e.except = clause
	return e
}

// idleFor accepts these values beside the others with such a warning.
func (e entry) idleFor(values ...string) entry {
	e.idleValues = values
	return e
}

// VMISpec returns which fields that spec sets are not supported. path is where
// the spec lies in its object.
func VMISpec(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	return check(vmiTable, reflect.ValueOf(spec), path)
}

// VMSpec does so for a VirtualMachine's spec, its template included.
func VMSpec(spec *v1.VirtualMachineSpec, path *field.Path) field.ErrorList {
	errs := check(vmTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		errs = append(errs, VMISpec(&spec.Template.Spec, path.Child("template", "spec"))...)
	}
	return errs
}

// ReplicaSetSpec does so for a VirtualMachineInstanceReplicaSet's spec.
func ReplicaSetSpec(spec *v1.VirtualMachineInstanceReplicaSetSpec, path *field.Path) field.ErrorList {
	errs := check(replicaSetTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		errs = append(errs, VMISpec(&spec.Template.Spec, path.Child("template", "spec"))...)
	}
	return errs
}

// MigrationSpec does so for a VirtualMachineInstanceMigration's spec.
func MigrationSpec(spec *v1.VirtualMachineInstanceMigrationSpec, path *field.Path) field.ErrorList {
	return check(migrationTable, reflect.ValueOf(spec), path)
}

// MigrationPolicySpec does so for a MigrationPolicy's spec.
func MigrationPolicySpec(spec *migrationsv1alpha1.MigrationPolicySpec, path *field.Path) field.ErrorList {
	return check(migrationPolicyTable, reflect.ValueOf(spec), path)
}

// KubeVirtSpec does so for the configuration.
func KubeVirtSpec(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	return check(kubeVirtTable, reflect.ValueOf(spec), path)
}

// check walks value by its JSON names.
func check(t table, value reflect.Value, path *field.Path) field.ErrorList {
	return walked(t, value, path).errs
}

func walked(t table, value reflect.Value, path *field.Path) *walk {
	w := &walk{table: t}
	w.visit(value, "", path)
	return w
}

type walk struct {
	table    table
	errs     field.ErrorList
	warnings []string
}

// visit judges what lies at one place; at is its path in the table.
func (w *walk) visit(value reflect.Value, at string, path *field.Path) {
	if e, found := w.table[at]; found {
		w.judge(e, value, path)
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			w.visit(value.Elem(), at, path)
		}
	case reflect.Slice:
		for i := range value.Len() {
			w.visit(value.Index(i), at, path.Index(i))
		}
	case reflect.Struct:
		for _, f := range fieldsOf(value.Type()) {
			if member, there := f.of(value); there {
				w.visit(member, join(at, f.name), path.Child(f.name))
			}
		}
	default:
		// The test of the table against the types sees to it that there is an
		// entry for every leaf.
		w.judge(entry{}, value, path)
	}
}

func (w *walk) judge(e entry, value reflect.Value, path *field.Path) {
	if isSet(value) {
		w.judgeSet(e, value, path)
	}
}

// judgeSet judges what a manifest sets, to whatever value.
func (w *walk) judgeSet(e entry, value reflect.Value, path *field.Path) {
	switch {
	case len(e.only) > 0 && e.allows(value):
	case e.idle || e.idleValue(value):
		w.warnings = append(w.warnings, e.warning(path))
	case e.allows(value):
	case e.yes:
		w.errs = append(w.errs, field.NotSupported(path, text(value), slices.Concat(e.only, e.idleValues)))
	default:
		w.errs = append(w.errs, field.Forbidden(path, e.refusal()))
	}
}

// refusal is what is said of a field that is not supported.
func (e entry) refusal() string {
	if e.note == "" {
		return NotSupported
	}
	return NotSupported + ": " + e.note
}

// allows reports whether a field may be set to value.
func (e entry) allows(value reflect.Value) bool {
	if len(e.only) == 0 {
		return e.yes
	}
	return slices.Contains(e.only, text(value))
}

// idleValue reports whether this value of a field has no effect.
func (e entry) idleValue(value reflect.Value) bool {
	// The text of a whole affinity takes the square of its size.
	return len(e.idleValues) > 0 && slices.Contains(e.idleValues, text(value))
}

func text(value reflect.Value) string {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	return fmt.Sprint(value.Interface())
}

// isSet reports whether a manifest says something here: a pointer that is there
// says something even when it points to nothing.
func isSet(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() > 0
	}
	return !value.IsZero()
}

// jsonField is a struct's field as JSON has it; those of embedded structs
// count as the struct's own.
type jsonField struct {
	name  string
	index []int
	typ   reflect.Type
}

// of is the field's value in a struct; false when it lies behind a pointer
// that is nil.
func (f jsonField) of(value reflect.Value) (reflect.Value, bool) {
	for _, i := range f.index {
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				return reflect.Value{}, false
			}
			value = value.Elem()
		}
		value = value.Field(i)
	}
	return value, true
}

func fieldsOf(t reflect.Type) []jsonField {
	var fields []jsonField
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if inline := name == "" && (f.Anonymous || options == "inline"); inline {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			for _, inner := range fieldsOf(embedded) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		fields = append(fields, jsonField{name: name, index: []int{i}, typ: f.Type})
	}
	return fields
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

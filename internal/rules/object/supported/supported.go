// Package supported holds the single table of the supported fields of Drydock's kinds and the supported
// annotations of KubeVirt's. Admission refuses an object that sets any other, so that nothing in a manifest is
// silently ignored, and warns of those that only tune an installation and have no effect here
// (decision 061). docs/supported-fields.md is generated from it, and a test compares it with the types of the
// API module, so that no new field is missed.
//
// It decides whether a field is supported, not whether its value is valid: package validate does.
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

// NotSupported begins the error for a field that Drydock does not implement.
const NotSupported = "not supported by Drydock"

// entry is for a field and all fields below it.
type entry struct {
	// yes means that the field is supported, with any value unless only lists values; those are compared as
	// text. An unsupported field may still be set to the values in only.
	yes  bool
	only []string
	// idle means that the field is accepted without effect and with a warning, except for the values in only;
	// idleValues are the individual values of that kind.
	idle       bool
	idleValues []string
	// except is the one effect of an idle field, as a clause.
	except string
	// note is for the documentation: a condition, or an alternative.
	note string
}

// table has the entries by the fields' paths, without indices: domain.devices.disks.name.
type table map[string]entry

func yes() entry                  { return entry{yes: true} }
func noted(note string) entry     { return entry{yes: true, note: note} }
func only(values ...string) entry { return entry{yes: true, only: values} }

// off is an unsupported feature whose field may be false.
func off() entry { return entry{only: []string{"false"}} }

// no is a refused field, with the reason and the alternative.
func no(reason string) entry           { return entry{note: reason} }
func (e entry) because(n string) entry { e.note = n; return e }

// idle is a field without effect, which changes neither the guest, nor its access, nor its data: it is accepted
// with a warning that gives the reason.
func idle(reason string) entry { return entry{yes: true, idle: true, note: reason} }

// withOnly sets values that cause no warning.
func (e entry) withOnly(values ...string) entry {
	e.only = values
	return e
}

// exceptThat sets the one effect of an idle field.
func (e entry) exceptThat(clause string) entry {
	e.except = clause
	return e
}

// idleFor accepts further values with a warning.
func (e entry) idleFor(values ...string) entry {
	e.idleValues = values
	return e
}

// VMISpec returns errors for the unsupported fields that a spec at path sets.
func VMISpec(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	return check(vmiTable, reflect.ValueOf(spec), path)
}

// VMSpec is VMISpec for a VirtualMachine's spec, including its template.
func VMSpec(spec *v1.VirtualMachineSpec, path *field.Path) field.ErrorList {
	errs := check(vmTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		errs = append(errs, VMISpec(&spec.Template.Spec, path.Child("template", "spec"))...)
	}
	return errs
}

// ReplicaSetSpec is VMISpec for a VirtualMachineInstanceReplicaSet's spec.
func ReplicaSetSpec(spec *v1.VirtualMachineInstanceReplicaSetSpec, path *field.Path) field.ErrorList {
	errs := check(replicaSetTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		errs = append(errs, VMISpec(&spec.Template.Spec, path.Child("template", "spec"))...)
	}
	return errs
}

// MigrationSpec is VMISpec for a VirtualMachineInstanceMigration's spec.
func MigrationSpec(spec *v1.VirtualMachineInstanceMigrationSpec, path *field.Path) field.ErrorList {
	return check(migrationTable, reflect.ValueOf(spec), path)
}

// MigrationPolicySpec is VMISpec for a MigrationPolicy's spec.
func MigrationPolicySpec(spec *migrationsv1alpha1.MigrationPolicySpec, path *field.Path) field.ErrorList {
	return check(migrationPolicyTable, reflect.ValueOf(spec), path)
}

// KubeVirtSpec is VMISpec for the KubeVirt object's spec.
func KubeVirtSpec(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	return check(kubeVirtTable, reflect.ValueOf(spec), path)
}

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

// visit judges a value and those below it; at is its path in the table.
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
		// The test of the table against the types guarantees an entry for every leaf.
		w.judge(entry{}, value, path)
	}
}

func (w *walk) judge(e entry, value reflect.Value, path *field.Path) {
	if isSet(value) {
		w.judgeSet(e, value, path)
	}
}

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

func (e entry) refusal() string {
	if e.note == "" {
		return NotSupported
	}
	return NotSupported + ": " + e.note
}

func (e entry) allows(value reflect.Value) bool {
	if len(e.only) == 0 {
		return e.yes
	}
	return slices.Contains(e.only, text(value))
}

// idleValue reports whether this value of a field has no effect.
func (e entry) idleValue(value reflect.Value) bool {
	// Formatting a whole affinity as text takes quadratic time.
	return len(e.idleValues) > 0 && slices.Contains(e.idleValues, text(value))
}

func text(value reflect.Value) string {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	return fmt.Sprint(value.Interface())
}

// A pointer counts as set even if it points to a zero value.
func isSet(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() > 0
	}
	return !value.IsZero()
}

// Fields of embedded structs count as the struct's own.
type jsonField struct {
	name  string
	index []int
	typ   reflect.Type
}

// of returns the field's value in a struct; false behind a nil pointer.
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

// Package vmpatch parses, judges and applies the JSON patches in restores and clones. A user's text is decoded once,
// strictly; only the decoded values may be judged, written to other objects and applied.
package vmpatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	v1 "kubevirt.io/api/core/v1"
	sigsjson "sigs.k8s.io/json"
)

// Limits of one object: the number of its patches, and their bytes together.
const (
	MaxPatches = 64
	MaxSize    = 64 << 10
)

// ops lists the operations whose result grows by no more than the patch. A copy may double the document.
var ops = []string{"add", "replace", "remove", "test"}

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op   string
	Path string
	// Value is a map, slice, string, bool, int64, float64 or nil.
	Value any
}

// MarshalJSON encodes the operation; a remove has no value.
func (o Operation) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		fields["value"] = o.Value
	}
	return json.Marshal(fields)
}

// Texts encodes the operations for the fields of restores and clones.
func Texts(operations []Operation) ([]string, error) {
	var texts []string
	for _, o := range operations {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encoding the patch of %s: %w", o.Path, err)
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}

// Parse decodes patches of one operation each. The error lists all faults.
func Parse(texts []string) ([]Operation, error) {
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if len(texts) > MaxPatches || size > MaxSize {
		return nil, fmt.Errorf("there are %d patches of %d bytes together; at most %d of %d bytes are applied", len(texts), size, MaxPatches, MaxSize)
	}
	var operations []Operation
	var faults []error
	for i, text := range texts {
		o, err := parse(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("patch %d %w", i+1, err))
			continue
		}
		operations = append(operations, o)
	}
	return operations, errors.Join(faults...)
}

// parse decodes one operation; its errors continue "patch 1".
func parse(text string) (Operation, error) {
	var fields map[string]any
	strict, err := sigsjson.UnmarshalStrict([]byte(text), &fields)
	if err == nil && fields == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return Operation{}, fmt.Errorf("is no operation of a JSON patch, as in {\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"copy\"}: %w", err)
	}
	if len(strict) > 0 {
		return Operation{}, fmt.Errorf("says something twice: %w", errors.Join(strict...))
	}
	op, isText := fields["op"].(string)
	if !isText || !slices.Contains(ops, op) {
		return Operation{}, fmt.Errorf("has the operation %q; add, replace, remove and test are supported", fmt.Sprint(fields["op"]))
	}
	path, isText := fields["path"].(string)
	if !isText || !strings.HasPrefix(path, "/") {
		return Operation{}, fmt.Errorf("has the path %q; a path begins with a slash, as in /spec/template", fmt.Sprint(fields["path"]))
	}
	value, has := fields["value"]
	if !has && op != "remove" {
		return Operation{}, fmt.Errorf("has the operation %s and no value", op)
	}
	return Operation{Op: op, Path: path, Value: value}, nil
}

// unescape decodes the names in a path (RFC 6901).
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// inList reports whether a path ends in a list element of a VirtualMachine. It follows the types: a label may be named
// like an index. An unknown path is in no list.
func inList(path string) bool {
	within := reflect.TypeFor[v1.VirtualMachine]()
	names := strings.Split(path, "/")
	for _, name := range names[1 : len(names)-1] {
		switch within.Kind() {
		case reflect.Struct:
			name = unescape.Replace(name)
			fields := reflect.VisibleFields(within)
			at := slices.IndexFunc(fields, func(f reflect.StructField) bool {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tag == name
			})
			if at < 0 {
				return false
			}
			within = fields[at].Type
		case reflect.Map, reflect.Slice:
			within = within.Elem()
		default:
			return false
		}
		if within.Kind() == reflect.Pointer {
			within = within.Elem()
		}
	}
	return within.Kind() == reflect.Slice
}

// Apply returns the VM with the operations applied. They can't set a field that a VirtualMachine lacks.
func Apply(vm *v1.VirtualMachine, operations []Operation) (*v1.VirtualMachine, error) {
	if len(operations) == 0 {
		return vm.DeepCopy(), nil
	}
	applied := make([]Operation, 0, len(operations))
	for _, o := range operations {
		// As the API defines it, a replace also sets an unset field, like an add. In a list an add would insert.
		if o.Op == "replace" && !inList(o.Path) {
			o.Op = "add"
		}
		applied = append(applied, o)
	}
	text, err := json.Marshal(applied)
	if err != nil {
		return nil, fmt.Errorf("encoding the patches: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("reading the patches: %w", err)
	}
	if text, err = json.Marshal(vm); err != nil {
		return nil, fmt.Errorf("encoding the VM of the snapshot: %w", err)
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, fmt.Errorf("applying the patches to the VM of the snapshot: %w", err)
	}
	out := &v1.VirtualMachine{}
	unknown, err := decode(text, out)
	if err != nil {
		return nil, fmt.Errorf("the patches make no VirtualMachine of the snapshot's: %w", err)
	}
	if len(unknown) > 0 {
		// Otherwise, a replace of a misspelled field would silently change nothing.
		return nil, fmt.Errorf("the patches set what a VirtualMachine does not have: %w", errors.Join(unknown...))
	}
	return out, nil
}

// guest lacks the type's own decoder, which ignores unknown fields.
type guest v1.VirtualMachineInstanceSpec

// decode also returns the unknown fields.
func decode(text []byte, to *v1.VirtualMachine) ([]error, error) {
	unknown, err := sigsjson.UnmarshalStrict(text, to)
	if err != nil || to.Spec.Template == nil {
		return unknown, err
	}
	var raw struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(text, &raw); err != nil || len(raw.Spec.Template.Spec) == 0 {
		return unknown, err
	}
	inGuest, err := sigsjson.UnmarshalStrict(raw.Spec.Template.Spec, &guest{})
	for _, fault := range inGuest {
		unknown = append(unknown, fmt.Errorf("in spec.template.spec: %w", fault))
	}
	return unknown, err
}

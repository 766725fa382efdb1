// Package expansion reads a VM's instance type and preference from the API server, and expands the VM with them. It must
// not write, nor interpret a type or a preference: instancetype of the rules does.
package expansion

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// VM expands a VM. Errors about fields come without a VM.
func VM(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine, binding string) (*v1.VirtualMachine, field.ErrorList, error) {
	used, _, errs, err := read(ctx, reader, vm)
	if len(errs) > 0 || err != nil {
		return nil, errs, err
	}
	expanded, errs := instancetype.Expand(vm, used, binding)
	return expanded, errs, nil
}

// Provisional expands a VM whose type or preference may not exist yet, for checks of the rest. missing says what does not.
func Provisional(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine, binding string) (expanded *v1.VirtualMachine, missing []string, errs field.ErrorList, err error) {
	used, absent, errs, err := read(ctx, reader, vm)
	if others := len(errs) - len(absent); others > 0 || err != nil {
		return nil, nil, errs, err
	}
	for _, e := range absent {
		missing = append(missing, e.Error())
	}
	if toType, _ := instancetype.References(vm); toType != nil && used.Type == nil {
		used.Type = instancetype.Placeholder(toType)
		if used.Preference != nil {
			used.Preference = used.Preference.WithoutShape()
		}
	}
	expanded, errs = instancetype.Expand(vm, used, binding)
	return expanded, missing, errs, nil
}

// read returns what a VM refers to. errs includes those of absent, which say that a type or a preference does not exist.
func read(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine) (used instancetype.Used, absent, errs field.ErrorList, err error) {
	toType, toPreference := instancetype.References(vm)
	for _, part := range []struct {
		to   *instancetype.Reference
		into **instancetype.Source
	}{{toType, &used.Type}, {toPreference, &used.Preference}} {
		if part.to == nil {
			continue
		}
		source, refused, err := Source(ctx, reader, vm.Namespace, part.to)
		if err != nil {
			return used, nil, nil, err
		}
		*part.into = source
		if refused != nil {
			errs = append(errs, refused)
		}
		if refused != nil && refused.Type == field.ErrorTypeNotFound {
			absent = append(absent, refused)
		}
	}
	return used, absent, errs, nil
}

// Source returns the target of a VM's reference: the content of the VM's revision, or else the type or preference itself.
// The error about the field means that there is none; it is of the type NotFound if a type or a preference does not exist.
func Source(ctx context.Context, reader client.Reader, namespace string, r *instancetype.Reference) (*instancetype.Source, *field.Error, error) {
	if errs := r.Check(); len(errs) > 0 {
		return nil, errs[0], nil
	}
	if r.InferFromVolume != "" {
		return nil, field.Forbidden(r.Path().Child("inferFromVolume"), "nothing has been inferred yet"), nil
	}
	if name := r.Revision(); name != "" {
		return revision(ctx, reader, types.NamespacedName{Namespace: namespace, Name: name}, r)
	}
	if len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
		return nil, field.Invalid(r.Path(), r.Name[:min(len(r.Name), validation.DNS1123SubdomainMaxLength)], "no object can have that name"), nil
	}
	object := objects[r.KindOf()]()
	key := types.NamespacedName{Name: r.Name}
	if r.Namespaced() {
		key.Namespace = namespace
	}
	found, err := get(ctx, reader, key, object)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("reading %s: %w", r, err)
	case !found:
		absent := field.NotFound(r.Path(), r.Name)
		absent.Detail = fmt.Sprintf("Failure to find %s: make it, or select another one", r)
		return nil, absent, nil
	}
	return instancetype.SourceOf(object), nil, nil
}

var objects = map[string]func() client.Object{
	instancetype.KindType:              func() client.Object { return &instancetypev1.VirtualMachineInstancetype{} },
	instancetype.KindClusterType:       func() client.Object { return &instancetypev1.VirtualMachineClusterInstancetype{} },
	instancetype.KindPreference:        func() client.Object { return &instancetypev1.VirtualMachinePreference{} },
	instancetype.KindClusterPreference: func() client.Object { return &instancetypev1.VirtualMachineClusterPreference{} },
}

func revision(ctx context.Context, reader client.Reader, key types.NamespacedName, r *instancetype.Reference) (*instancetype.Source, *field.Error, error) {
	kept := &appsv1.ControllerRevision{}
	found, err := get(ctx, reader, key, kept)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ControllerRevision %s: %w", key, err)
	}
	if !found {
		return nil, field.Invalid(r.Path().Child("revisionName"), key.Name,
			"Failure to find the ControllerRevision that the VM goes by; without a revisionName it goes by what "+r.String()+" is now"), nil
	}
	source, err := instancetype.FromRevision(r, kept)
	if err != nil {
		return nil, field.Invalid(r.Path().Child("revisionName"), key.Name, err.Error()), nil
	}
	return source, nil, nil
}

func get(ctx context.Context, reader client.Reader, key types.NamespacedName, into client.Object) (bool, error) {
	if len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		// No revision can have such a name, which the API server would reject.
		return false, nil
	}
	err := reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

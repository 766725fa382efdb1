package api

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/cloneright"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/inference"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/expansion"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/supported"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

const (
	validateType              = "/validate/virtualmachineinstancetypes"
	validateClusterType       = "/validate/virtualmachineclusterinstancetypes"
	validatePreference        = "/validate/virtualmachinepreferences"
	validateClusterPreference = "/validate/virtualmachineclusterpreferences"
)

func addInstancetypes(add adder) {
	addTypes(add, validateType, func(o *instancetypev1.VirtualMachineInstancetype) *instancetypev1.VirtualMachineInstancetypeSpec {
		return &o.Spec
	})
	addTypes(add, validateClusterType, func(o *instancetypev1.VirtualMachineClusterInstancetype) *instancetypev1.VirtualMachineInstancetypeSpec {
		return &o.Spec
	})
	addPreferences(add, validatePreference, func(o *instancetypev1.VirtualMachinePreference) *instancetypev1.VirtualMachinePreferenceSpec {
		return &o.Spec
	})
	addPreferences(add, validateClusterPreference, func(o *instancetypev1.VirtualMachineClusterPreference) *instancetypev1.VirtualMachinePreferenceSpec {
		return &o.Spec
	})
}

func addTypes[T any](add adder, path string, spec func(*T) *instancetypev1.VirtualMachineInstancetypeSpec) {
	handler, err := admission.ValidatingAsking(func(_ context.Context, r admission.Request[T]) (field.ErrorList, error) {
		return instancetype.CheckType(spec(r.New)), nil
	}, func(r admission.Request[T]) []string { return instancetype.WarnType(spec(r.New)) },
		func(r admission.Request[T]) []string { return annotationWarnings(spec(r.New).Annotations) })
	add(path, handler, err)
}

func addPreferences[T any](add adder, path string, spec func(*T) *instancetypev1.VirtualMachinePreferenceSpec) {
	handler, err := admission.ValidatingAsking(func(_ context.Context, r admission.Request[T]) (field.ErrorList, error) {
		return instancetype.CheckPreference(spec(r.New)), nil
	}, func(r admission.Request[T]) []string { return instancetype.DeprecatedPreference(spec(r.New)) },
		func(r admission.Request[T]) []string { return annotationWarnings(spec(r.New).Annotations) })
	add(path, handler, err)
}

func annotationWarnings(annotations map[string]string) []string {
	return supported.VMIAnnotationWarnings(annotations, field.NewPath("spec", "annotations"))
}

type virtualMachines struct {
	settings *clusterconfig.Current
	// cluster must not be a cache.
	cluster client.Reader
	right   cloneright.Checker
}

// A reference that can't be inferred stays, so that judge reports why.
func (v virtualMachines) complete(ctx context.Context, r admission.Request[v1.VirtualMachine]) error {
	vm := r.New
	if instancetype.Refers(vm) {
		namespace := vm.Namespace
		vm.Namespace = r.Namespace
		_, err := v.inferrer(r).Infer(ctx, vm)
		if instancetype.Complete(vm, r.Old); err == nil {
			err = v.preferMachine(ctx, r)
		}
		vm.Namespace = namespace
		if err != nil {
			return err
		}
	}
	defaults.VM(vm, r.Old, v.settings.Get())
	if r.Component() {
		return nil
	}
	return cloneright.NoteWriters(vm, r.Old, r.Namespace, validate.NewTemplates(vm, r.Old), r.User)
}

func (v virtualMachines) inferrer(r admission.Request[v1.VirtualMachine]) inference.Inferrer {
	return inference.Inferrer{Cluster: v.cluster, MayClone: v.right.Allowed, User: r.User}
}

// preferMachine gives a new VM its preferred machine type, before the cluster's default is written.
func (v virtualMachines) preferMachine(ctx context.Context, r admission.Request[v1.VirtualMachine]) error {
	_, preference := instancetype.References(r.New)
	if r.Old != nil || preference == nil {
		return nil
	}
	source, _, err := expansion.Source(ctx, v.cluster, r.Namespace, preference)
	if source != nil {
		instancetype.PreferMachine(r.New, source)
	}
	return err
}

// judge validates a VM as its guest will be. A type or a preference may be made after the VM, as with KubeVirt.
func (v virtualMachines) judge(ctx context.Context, r admission.Request[v1.VirtualMachine]) (admission.Verdict, error) {
	if validate.Unchanged(r.New, r.Old) {
		return admission.Verdict{}, nil
	}
	if !instancetype.Refers(r.New) {
		return admission.Verdict{Errors: validate.VM(r.New, r.Old, v.settings.Get())}, nil
	}
	vm := r.New.DeepCopy()
	vm.Namespace = r.Namespace
	if errs, err := v.inferrer(r).Infer(ctx, vm); len(errs) > 0 || err != nil {
		return admission.Verdict{Errors: errs}, err
	}
	settings := v.settings.Get()
	expanded, missing, errs, err := expansion.Provisional(ctx, v.cluster, vm, settings.DefaultNetworkInterface)
	if len(errs) > 0 || err != nil {
		return admission.Verdict{Errors: errs}, err
	}
	verdict := admission.Verdict{Errors: validate.ExpandedVM(r.New, expanded, r.Old, settings)}
	if !r.Component() {
		verdict.Warnings = validate.ExpandedVMWarnings(vm, expanded, settings)
		for _, what := range missing {
			verdict.Warnings = append(verdict.Warnings, what+"; the VM starts when it exists")
		}
	}
	return verdict, nil
}

// Package validate holds the rules by which admission refuses objects: what is
// wrong with an object, each error with the field's path, the value and what is
// allowed, all at once; and which changes of an object its owner may make.
//
// It is pure: it must neither change an object nor read the cluster.
package validate

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/clusterconfig"
	"drydock.dev/drydock/internal/firmware"
)

// VM judges a VirtualMachine; old is nil on creation.
func VM(vm, old *v1.VirtualMachine, _ clusterconfig.Settings) field.ErrorList {
	var errs field.ErrorList
	template := field.NewPath("spec", "template")
	if vm.Spec.Template == nil {
		return append(errs, field.Required(template, "a VirtualMachine needs a template"))
	}
	if old != nil && old.Spec.Template != nil {
		if err := firmware.ValidateUpdate(&old.Spec.Template.Spec, &vm.Spec.Template.Spec, template.Child("spec")); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// VMI judges a new VirtualMachineInstance.
func VMI(vmi *v1.VirtualMachineInstance, _ clusterconfig.Settings) field.ErrorList {
	return nil
}

// VMIUpdate judges what somebody who is no component of Drydock changes of a
// VirtualMachineInstance.
func VMIUpdate(vmi, old *v1.VirtualMachineInstance) field.ErrorList {
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(vmi.Spec, old.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "update of VMI object is restricted"))
	}
	if !equality.Semantic.DeepEqual(vmi.Status, old.Status) {
		errs = append(errs, field.Forbidden(field.NewPath("status"), "only Drydock's components write the status"))
	}
	return errs
}

// ReplicaSet judges a VirtualMachineInstanceReplicaSet.
func ReplicaSet(rs, _ *v1.VirtualMachineInstanceReplicaSet, _ clusterconfig.Settings) field.ErrorList {
	return nil
}

// Migration judges a VirtualMachineInstanceMigration.
func Migration(_, _ *v1.VirtualMachineInstanceMigration) field.ErrorList {
	return nil
}

// KubeVirt judges the configuration.
func KubeVirt(_, _ *v1.KubeVirt) field.ErrorList {
	return nil
}

// Package validate has the rules by which admission refuses objects, with all errors of an object at once, each with the
// field's path, the value and the allowed values. It also decides which changes of an object its owner may make.
//
// It must neither change an object nor read the cluster. Package supported decides whether a field is implemented, package
// vmispec judges the values in the spec of a VMI or a template.
package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate/vmispec"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// VM validates a VM as the VMI that it will become. old is nil on creation.
func VM(vm, old *v1.VirtualMachine, settings clusterconfig.Settings) field.ErrorList {
	if Unchanged(vm, old) {
		return nil
	}
	return judgeVM(vm, vm, old, settings)
}

// Unchanged reports whether a VM need not be validated: it must be possible to remove finalizers whatever an earlier
// release admitted.
func Unchanged(vm, old *v1.VirtualMachine) bool {
	return old != nil && (vm.DeletionTimestamp != nil || equality.Semantic.DeepEqual(vm.Spec, old.Spec))
}

// ExpandedVM validates a VM together with its instance type and preference. Errors that the VM alone does not have
// are attributed to these.
func ExpandedVM(vm, expanded, old *v1.VirtualMachine, settings clusterconfig.Settings) field.ErrorList {
	errs := judgeVM(vm, expanded, old, settings)
	if len(errs) == 0 {
		return nil
	}
	own := map[string]bool{}
	for _, err := range judgeVM(vm, vm, old, settings) {
		own[err.Error()] = true
	}
	for _, err := range errs {
		if !own[err.Error()] {
			err.Detail += " (that is what the VM's instance type or preference asks for)"
		}
	}
	return errs
}

func judgeVM(vm, expanded, old *v1.VirtualMachine, settings clusterconfig.Settings) field.ErrorList {
	spec := field.NewPath("spec")
	errs := supported.VMSpec(&expanded.Spec, spec)
	switch s := &vm.Spec; {
	case s.Running != nil && s.RunStrategy != nil:
		errs = append(errs, field.Invalid(spec.Child("running"), *s.Running,
			"Running and RunStrategy are mutually exclusive; Running is deprecated, use RunStrategy"))
	case s.Running == nil && s.RunStrategy == nil:
		errs = append(errs, field.Required(spec.Child("runStrategy"), "one of Running or RunStrategy must be specified"))
	}
	errs = append(errs, dataVolumeTemplates(expanded, spec.Child("dataVolumeTemplates"), settings)...)
	template := spec.Child("template")
	if vm.Spec.Template == nil {
		return append(errs, field.Required(template, "a VirtualMachine needs a template"))
	}
	if old != nil && old.Spec.Template != nil {
		if err := firmware.ValidateUpdate(&old.Spec.Template.Spec, &vm.Spec.Template.Spec, template.Child("spec")); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, pluggedVolumes(vm, old, template.Child("spec", "volumes"))...)
		errs = append(errs, heldDisks(vm, old, spec)...)
	}
	return append(errs, podTemplate(expanded.Spec.Template, template, settings)...)
}

// pluggedVolumes refuses a change that would plug another disk into a guest instead of copying the disk's content.
func pluggedVolumes(vm, old *v1.VirtualMachine, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !old.Status.Created || !volumemigration.ByMigration(&vm.Spec) {
		return nil
	}
	for _, e := range volumemigration.Exchanges(&old.Spec.Template.Spec, &vm.Spec.Template.Spec) {
		errs = append(errs, field.Forbidden(path.Index(e.Index), fmt.Sprintf("volume %s is hotpluggable, and its disk can't be copied to another claim while the VM runs: %s; "+
			"stop the VM, or unplug it and plug the other claim by another name", vm.Spec.Template.Spec.Volumes[e.Index].Name, e.Why)))
	}
	return errs
}

// heldDisks refuses to exchange a VM's disks while they are being snapshotted or restored, and to start a VM that is
// being restored.
func heldDisks(vm, old *v1.VirtualMachine, spec *field.Path) field.ErrorList {
	var by string
	switch restore, snapshot := old.Status.RestoreInProgress, old.Status.SnapshotInProgress; {
	case restore != nil:
		by = fmt.Sprintf("restore %q", *restore)
	case snapshot != nil:
		by = fmt.Sprintf("snapshot %q", *snapshot)
	default:
		return nil
	}
	var errs field.ErrorList
	// KubeVirt's clients match these.
	forbid := func(path *field.Path, what string) {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("Cannot update %s until %s completes", what, by)))
	}
	if !equality.Semantic.DeepEqual(vm.Spec.Template.Spec.Volumes, old.Spec.Template.Spec.Volumes) {
		forbid(spec.Child("template", "spec", "volumes"), "vm disks or volumes")
	}
	if !equality.Semantic.DeepEqual(vm.Spec.DataVolumeTemplates, old.Spec.DataVolumeTemplates) {
		forbid(spec.Child("dataVolumeTemplates"), "vm disks or volumes")
	}
	before, _ := old.RunStrategy()
	if after, err := vm.RunStrategy(); err == nil && after != before && after != v1.RunStrategyHalted && old.Status.RestoreInProgress != nil {
		forbid(spec.Child("runStrategy"), "VM runStrategy")
	}
	return errs
}

// DisksHeldBy names the restore or the snapshot during which a VM's volumes can't be changed, "" for none.
func DisksHeldBy(vm *v1.VirtualMachine) string {
	switch {
	case vm.Status.RestoreInProgress != nil:
		return "VirtualMachineRestore " + *vm.Status.RestoreInProgress
	case vm.Status.SnapshotInProgress != nil:
		return "VirtualMachineSnapshot " + *vm.Status.SnapshotInProgress
	}
	return ""
}

func podTemplate(template *v1.VirtualMachineInstanceTemplateSpec, path *field.Path, settings clusterconfig.Settings) field.ErrorList {
	meta := template.ObjectMeta
	// They have no effect: the VMI has its VM's.
	meta.Name, meta.GenerateName, meta.Namespace = "", "", ""
	errs := templateMetadata(&meta, path.Child("metadata"))
	complete := template.Spec.DeepCopy()
	defaults.Spec(complete, settings)
	errs = append(errs, permitted(complete, path.Child("spec"), settings)...)
	errs = append(errs, maintainedTemplate(complete, path.Child("spec"))...)
	return append(errs, vmispec.Validate(complete, path.Child("spec"))...)
}

// VMI validates a new VMI, even virt-controller's: its metadata comes from a user's template.
func VMI(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) field.ErrorList {
	spec, metadata := field.NewPath("spec"), field.NewPath("metadata")
	errs := append(supported.VMISpec(&vmi.Spec, spec), permitted(&vmi.Spec, spec, settings)...)
	errs = append(errs, reservedLabels(vmi.Labels, nil, metadata.Child("labels"))...)
	errs = append(errs, reservedAnnotations(vmi.Annotations, nil, metadata.Child("annotations"))...)
	errs = append(errs, instanceLock(vmi.Annotations, nil, metadata.Child("annotations"))...)
	errs = append(errs, supported.VMIAnnotations(vmi.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, lasting(vmi)...)
	if m := vmi.Spec.Domain.Memory; m == nil || m.Guest == nil {
		// As in KubeVirt, a template without memory is stored, with a warning.
		domain := spec.Child("domain")
		errs = append(errs, field.Required(domain.Child("memory", "guest"), noMemory(domain)))
	}
	return append(errs, vmispec.Validate(&vmi.Spec, spec)...)
}

// VMIUpdate validates a user's update.
func VMIUpdate(vmi, old *v1.VirtualMachineInstance) field.ErrorList {
	metadata := field.NewPath("metadata")
	errs := reservedLabels(vmi.Labels, old.Labels, metadata.Child("labels"))
	errs = append(errs, reservedAnnotations(vmi.Annotations, old.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, instanceLock(vmi.Annotations, old.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, lasting(vmi)...)
	errs = append(errs, unchanged(machineAnnotations, vmi.Annotations, old.Annotations, metadata.Child("annotations"),
		"a guest keeps what it has from its start: delete the VMI and create it anew, or change the template of its VirtualMachine")...)
	errs = append(errs, supported.VMIAnnotations(changed(vmi.Annotations, old), metadata.Child("annotations"))...)
	switch {
	case equality.Semantic.DeepEqual(vmi.Spec, old.Spec):
	case takesToMaintenance(vmi, old):
		errs = append(errs, intoMaintenance(vmi, old)...)
	default:
		instead := "delete it and create it anew; a VirtualMachine can be changed"
		if metav1.GetControllerOf(old) != nil {
			instead = "change the template of its owner instead"
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "update of VMI object is restricted: "+instead))
	}
	if !equality.Semantic.DeepEqual(vmi.Status, old.Status) {
		errs = append(errs, field.Forbidden(field.NewPath("status"), "only Drydock's components report a guest's state"))
	}
	return errs
}

package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// If CDI serves DataVolumes, it validates their content.
func dataVolumeTemplates(vm *v1.VirtualMachine, path *field.Path, settings clusterconfig.Settings) field.ErrorList {
	var errs field.ErrorList
	// A claim has the name of the DataVolume that fills it.
	used := map[string]bool{}
	if vm.Spec.Template != nil {
		for _, name := range volumeclaim.Names(vm.Spec.Template.Spec.Volumes) {
			used[name] = true
		}
	}
	names := map[string]bool{}
	for i := range vm.Spec.DataVolumeTemplates {
		template, at := &vm.Spec.DataVolumeTemplates[i], path.Index(i)
		meta := template.ObjectMeta
		name := at.Child("metadata", "name")
		errs = append(errs, fieldcheck.RequiredName(meta.Name, name, "names the DataVolume and its claim")...)
		errs = append(errs, fieldcheck.Unique(names, meta.Name, name)...)
		if meta.Name != "" && !used[meta.Name] {
			errs = append(errs, field.Invalid(name, meta.Name,
				fmt.Sprintf("DataVolumeTemplate entry %s must be referenced in VMI template's 'volumes' list", at)))
		}
		meta.Name = ""
		if meta.Namespace == vm.Namespace {
			meta.Namespace = ""
		}
		errs = append(errs, templateMetadata(&meta, at.Child("metadata"))...)
		if settings.CDI {
			continue
		}
		errs = append(errs, DataVolumeSpec(&template.Spec, at.Child("spec"))...)
		dv := &cdiv1.DataVolume{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		errs = append(errs, dataVolumeAnnotations(dv, at.Child("metadata", "annotations"))...)
	}
	return errs
}

// NewTemplates returns the indices of the dataVolumeTemplates that are not in old unchanged. The others were
// validated when they were written.
func NewTemplates(vm, old *v1.VirtualMachine) []int {
	var out []int
	for i := range vm.Spec.DataVolumeTemplates {
		known := false
		if old != nil {
			for j := range old.Spec.DataVolumeTemplates {
				known = known || equality.Semantic.DeepEqual(vm.Spec.DataVolumeTemplates[i], old.Spec.DataVolumeTemplates[j])
			}
		}
		if !known {
			out = append(out, i)
		}
	}
	return out
}

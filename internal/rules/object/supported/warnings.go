package supported

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// maxWarnings bounds the warnings of one object: a response has little room for them.
const maxWarnings = 20

// Warning returns the warning about a field or annotation without effect.
func Warning(path *field.Path, reason string) string {
	return fmt.Sprintf("%s has no effect: %s", path, reason)
}

func (e entry) warning(path *field.Path) string {
	if e.except == "" {
		return Warning(path, e.note)
	}
	return fmt.Sprintf("%s has no effect except that %s: %s", path, e.except, e.note)
}

// VMISpecWarnings returns warnings for the fields that spec sets and that have no effect.
func VMISpecWarnings(spec *v1.VirtualMachineInstanceSpec, path *field.Path) []string {
	return warnings(vmiTable, reflect.ValueOf(spec), path)
}

// VMSpecWarnings is VMISpecWarnings for a VirtualMachine's spec, including its templates.
func VMSpecWarnings(spec *v1.VirtualMachineSpec, path *field.Path) []string {
	all := warnings(vmTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		all = append(all, templateWarnings(spec.Template, path.Child("template"))...)
	}
	for i := range spec.DataVolumeTemplates {
		all = append(all, DataVolumeSpecWarnings(&spec.DataVolumeTemplates[i].Spec, path.Child("dataVolumeTemplates").Index(i).Child("spec"))...)
	}
	return bounded(all)
}

// ReplicaSetSpecWarnings is VMISpecWarnings for a VirtualMachineInstanceReplicaSet's spec.
func ReplicaSetSpecWarnings(spec *v1.VirtualMachineInstanceReplicaSetSpec, path *field.Path) []string {
	all := warnings(replicaSetTable, reflect.ValueOf(spec), path)
	if spec.Template != nil {
		all = append(all, templateWarnings(spec.Template, path.Child("template"))...)
	}
	return bounded(all)
}

func templateWarnings(template *v1.VirtualMachineInstanceTemplateSpec, path *field.Path) []string {
	all := VMIAnnotationWarnings(template.ObjectMeta.Annotations, path.Child("metadata", "annotations"))
	return append(all, VMISpecWarnings(&template.Spec, path.Child("spec"))...)
}

// DataVolumeSpecWarnings is VMISpecWarnings for a DataVolume's spec.
func DataVolumeSpecWarnings(spec *cdiv1.DataVolumeSpec, path *field.Path) []string {
	return warnings(dataVolumeTable, reflect.ValueOf(spec), path)
}

// KubeVirtSpecWarnings is VMISpecWarnings for the KubeVirt object's spec.
func KubeVirtSpecWarnings(spec *v1.KubeVirtSpec, path *field.Path) []string {
	return warnings(kubeVirtTable, reflect.ValueOf(spec), path)
}

func warnings(t table, value reflect.Value, path *field.Path) []string {
	return bounded(walked(t, value, path).warnings)
}

func bounded(all []string) []string {
	if len(all) <= maxWarnings {
		return all
	}
	left := len(all) - maxWarnings + 1
	return append(all[:maxWarnings-1:maxWarnings-1], fmt.Sprintf("%d more have no effect: docs/supported-fields.md lists all", left))
}

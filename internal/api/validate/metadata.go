package validate

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/object/supported"
)

var annotations = field.NewPath("metadata", "annotations")

// Nothing else of a template's metadata is used.
func templateMetadata(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := fieldcheck.Labels(meta.Labels, path.Child("labels"))
	errs = append(errs, fieldcheck.Annotations(meta.Annotations, path.Child("annotations"))...)
	errs = append(errs, reservedLabels(meta.Labels, nil, path.Child("labels"))...)
	errs = append(errs, reservedAnnotations(meta.Annotations, nil, path.Child("annotations"))...)
	errs = append(errs, instanceLock(meta.Annotations, nil, path.Child("annotations"))...)
	errs = append(errs, supported.VMIAnnotations(meta.Annotations, path.Child("annotations"))...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"finalizers", len(meta.Finalizers) > 0},
		{"generateName", meta.GenerateName != ""},
		{"name", meta.Name != ""},
		{"namespace", meta.Namespace != ""},
		{"ownerReferences", len(meta.OwnerReferences) > 0},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), supported.NotSupported))
		}
	}
	return errs
}

func changed[T any, O interface {
	*T
	metav1.Object
}](now map[string]string, old O) map[string]string {
	out := maps.Clone(now)
	if old == nil {
		return out
	}
	before := old.GetAnnotations()
	maps.DeleteFunc(out, func(name, value string) bool {
		was, existed := before[name]
		return existed && was == value
	})
	return out
}

// Drydock's components rely on these labels.
var reserved = []string{
	v1.CreatedByLabel,
	v1.MigrationJobLabel,
	v1.NodeNameLabel,
	v1.MigrationTargetNodeNameLabel,
	v1.NodeSchedulable,
	v1.InstallStrategyLabel,
	v1.AppLabel,
	layout.MaintenanceLabel,
}

func reservedLabels(now, before map[string]string, path *field.Path) field.ErrorList {
	return unchanged(reserved, now, before, path, "modification of the reserved kubevirt.io labels on a VMI object is prohibited")
}

// machineAnnotations configure QEMU's command line. The QEMU to which a guest migrates must be started with the same.
var machineAnnotations = []string{v1.DisablePCIHole64, v1.FreePageReportingDisabledAnnotation, v1.IgnitionAnnotation}

func reservedAnnotations(now, before map[string]string, path *field.Path) field.ErrorList {
	return unchanged(hotplug.ReservedAnnotations(), now, before, path, hotplug.ReservedRefusal)
}

func unchanged(names []string, now, before map[string]string, path *field.Path, message string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names {
		value, there := now[name]
		was, existed := before[name]
		if there != existed || value != was {
			errs = append(errs, field.Forbidden(path.Key(name), message))
		}
	}
	return errs
}

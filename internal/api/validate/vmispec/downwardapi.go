package vmispec

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
)

var downwardFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}

func fieldRef(f *corev1.ObjectFieldSelector, path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	errs := fieldcheck.OneOf(f.APIVersion, path.Child("apiVersion"), "v1")
	part, key, indexed := strings.Cut(strings.TrimSuffix(f.FieldPath, "']"), "['")
	if indexed && (part == "metadata.labels" || part == "metadata.annotations") {
		return append(errs, fieldcheck.Problems(f.FieldPath, path.Child("fieldPath"), validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return append(errs, fieldcheck.RequiredOneOf(f.FieldPath, path.Child("fieldPath"), downwardFields)...)
}

// downwardResources are the resources of a container that a downwardAPI volume can contain, with their possible
// divisors.
var downwardResources = map[string][]string{
	"limits.cpu": cpuUnits, "requests.cpu": cpuUnits,
	"limits.memory": byteUnits, "requests.memory": byteUnits,
	"limits.ephemeral-storage": byteUnits, "requests.ephemeral-storage": byteUnits,
}

var (
	cpuUnits  = []string{"0", "1m", "1"}
	byteUnits = []string{"0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func resourceFieldRef(f *corev1.ResourceFieldSelector, container string, path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	errs := fieldcheck.RequiredOneOf(f.ContainerName, path.Child("containerName"), []string{container})
	units, known := downwardResources[f.Resource]
	if !known {
		// The divisors of an unknown resource are unknown, too.
		return append(errs, field.NotSupported(path.Child("resource"), f.Resource, slices.Sorted(maps.Keys(downwardResources))))
	}
	return append(errs, fieldcheck.RequiredOneOf(f.Divisor.String(), path.Child("divisor"), units)...)
}

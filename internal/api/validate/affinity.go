package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"drydock.dev/drydock/internal/rules/object/quantity"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The API server validates these fields only when the launcher pod is created: an invalid one would be a VM that
// never starts.

func podAffinity(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, affinityTerm(&required[i], path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		if w := preferred[i].Weight; w < 1 || w > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), w, "must be in the range 1-100"))
		}
		errs = append(errs, affinityTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func affinityTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := labelSelector(t.LabelSelector, path.Child("labelSelector"))
	errs = append(errs, labelSelector(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	for i, name := range t.Namespaces {
		errs = append(errs, label(name, path.Child("namespaces").Index(i))...)
	}
	errs = append(errs, labelKeys(t.MatchLabelKeys, t.LabelSelector, path.Child("matchLabelKeys"))...)
	errs = append(errs, labelKeys(t.MismatchLabelKeys, t.LabelSelector, path.Child("mismatchLabelKeys"))...)
	return append(errs, topologyKey(t.TopologyKey, path.Child("topologyKey"))...)
}

// labelKeys validates keys whose values are the pod's own.
func labelKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(keys) > 0 && selector == nil {
		errs = append(errs, field.Forbidden(path, "must not be specified when labelSelector is not set"))
	}
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

func topologyKey(key string, path *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(path, "names the label of nodes that are one place when its values are the same")}
	}
	return metav1validation.ValidateLabelName(key, path)
}

func resourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
		return nil
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		size := strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if pages, err := quantity.Pages(size); err != nil || pages.String() != size {
			return field.ErrorList{field.Invalid(path, name, "must be hugepages-2Mi or hugepages-1Gi")}
		}
		return nil
	case !strings.Contains(string(name), "/"):
		return field.ErrorList{field.Invalid(path, name, "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain, such as example.com/device")}
	}
	return sentences(string(name), path, validation.IsQualifiedName(string(name)))
}

var downwardFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}

func fieldRef(f *corev1.ObjectFieldSelector, path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	errs := oneOf(f.APIVersion, path.Child("apiVersion"), "v1")
	part, key, indexed := strings.Cut(strings.TrimSuffix(f.FieldPath, "']"), "['")
	if indexed && (part == "metadata.labels" || part == "metadata.annotations") {
		return append(errs, sentences(f.FieldPath, path.Child("fieldPath"), validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return append(errs, oneOfThese(f.FieldPath, path.Child("fieldPath"), downwardFields)...)
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
	errs := oneOfThese(f.ContainerName, path.Child("containerName"), []string{container})
	units, known := downwardResources[f.Resource]
	if !known {
		// The divisors of an unknown resource are unknown, too.
		return append(errs, field.NotSupported(path.Child("resource"), f.Resource, slices.Sorted(maps.Keys(downwardResources))))
	}
	return append(errs, oneOfThese(f.Divisor.String(), path.Child("divisor"), units)...)
}

// An empty value is refused, too.
func oneOfThese(value string, path *field.Path, allowed []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be one of %s", strings.Join(allowed, ", ")))}
	}
	return oneOf(value, path, allowed...)
}

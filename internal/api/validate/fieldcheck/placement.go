package fieldcheck

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// NodePlacement validates the fields nodeSelector, affinity and tolerations of the object at a path. The API server
// validates them only when a pod is created: an invalid one would be a VM that never starts.
func NodePlacement(selector map[string]string, a *corev1.Affinity, tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	errs := Labels(selector, path.Child("nodeSelector"))
	errs = append(errs, affinity(a, path.Child("affinity"))...)
	for i := range tolerations {
		errs = append(errs, toleration(&tolerations[i], path.Child("tolerations").Index(i))...)
	}
	return errs
}

func affinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a == nil {
		return nil
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, podAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, podAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	if a.NodeAffinity == nil {
		return errs
	}
	if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := path.Child("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
		if len(required.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(at.Child("nodeSelectorTerms"), "must have at least one term"))
		}
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(at))
		errs = append(errs, fieldErrors(err, at)...)
	}
	if preferred := a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution; preferred != nil {
		at := path.Child("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
		_, err := nodeaffinity.NewPreferredSchedulingTerms(preferred, field.WithPath(at))
		errs = append(errs, fieldErrors(err, at)...)
	}
	return errs
}

func fieldErrors(err error, at *field.Path) field.ErrorList {
	var many utilerrors.Aggregate
	var one *field.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		var errs field.ErrorList
		for _, e := range many.Errors() {
			errs = append(errs, fieldErrors(e, at)...)
		}
		return errs
	case errors.As(err, &one):
		return field.ErrorList{one}
	}
	return field.ErrorList{field.Invalid(at, "", err.Error())}
}

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
	errs := LabelSelector(t.LabelSelector, path.Child("labelSelector"))
	errs = append(errs, LabelSelector(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	for i, name := range t.Namespaces {
		errs = append(errs, DNSLabel(name, path.Child("namespaces").Index(i))...)
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

func toleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	errs := OneOf(t.Operator, path.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)
	errs = append(errs, OneOf(t.Effect, path.Child("effect"),
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "must be Exists when the key is empty"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty when the operator is Exists"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
	}
	return errs
}

// TopologySpread validates a constraint.
func TopologySpread(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
	}
	errs = append(errs, topologyKey(c.TopologyKey, path.Child("topologyKey"))...)
	errs = append(errs, LabelSelector(c.LabelSelector, path.Child("labelSelector"))...)
	errs = append(errs, labelKeys(c.MatchLabelKeys, c.LabelSelector, path.Child("matchLabelKeys"))...)
	if d := c.MinDomains; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *d, "must be greater than zero"))
	} else if d != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *d, "needs whenUnsatisfiable to be DoNotSchedule"))
	}
	errs = append(errs, inclusion(c.NodeAffinityPolicy, path.Child("nodeAffinityPolicy"))...)
	errs = append(errs, inclusion(c.NodeTaintsPolicy, path.Child("nodeTaintsPolicy"))...)
	return append(errs, OneOf(c.WhenUnsatisfiable, path.Child("whenUnsatisfiable"),
		corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
}

func inclusion(policy *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if policy == nil {
		return nil
	}
	return OneOf(*policy, path, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
}

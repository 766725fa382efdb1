package validate

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// ReplicaSet validates a replica set. old is nil on creation.
func ReplicaSet(rs, old *v1.VirtualMachineInstanceReplicaSet, settings clusterconfig.Settings) field.ErrorList {
	if old != nil && (rs.DeletionTimestamp != nil || equality.Semantic.DeepEqual(rs.Spec, old.Spec)) {
		return nil
	}
	spec := field.NewPath("spec")
	errs := supported.ReplicaSetSpec(&rs.Spec, spec)
	if r := rs.Spec.Replicas; r != nil && *r < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), *r, "must not be negative"))
	}
	if old != nil && !equality.Semantic.DeepEqual(rs.Spec.Selector, old.Spec.Selector) {
		errs = append(errs, field.Forbidden(spec.Child("selector"), "the selector can't be changed"))
	}
	template := rs.Spec.Template
	if template == nil {
		return append(errs, field.Required(spec.Child("template"), "a replica set needs a template"))
	}
	errs = append(errs, selects(rs.Spec.Selector, template.ObjectMeta.Labels, spec.Child("selector"))...)
	return append(errs, podTemplate(template, spec.Child("template"), settings)...)
}

// A replica set must select the VMIs that it creates.
func selects(selector *metav1.LabelSelector, templateLabels map[string]string, path *field.Path) field.ErrorList {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(path, "an empty selector would select every VMI of the namespace")}
	}
	errs := fieldcheck.LabelSelector(selector, path)
	if len(errs) > 0 {
		return errs
	}
	matcher, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(selector), err.Error())}
	}
	if !matcher.Matches(labels.Set(templateLabels)) {
		described := "none"
		if len(templateLabels) > 0 {
			described = labels.Set(maps.Clone(templateLabels)).String()
		}
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(selector),
			"must match the template's labels, which are: "+described)}
	}
	return nil
}

package validate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func labelSet(set map[string]string, path *field.Path) field.ErrorList {
	return ordered(metav1validation.ValidateLabels(set, path))
}

func labelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return ordered(metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path))
}

// Kubernetes returns errors about a map in random order, but one manifest should always get one response.
func ordered(errs field.ErrorList) field.ErrorList {
	texts := make(map[*field.Error]string, len(errs))
	for _, err := range errs {
		texts[err] = err.Error()
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(texts[a], texts[b]) })
	return errs
}

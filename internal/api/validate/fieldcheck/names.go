package fieldcheck

import (
	"cmp"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DNSLabel validates a name such as a namespace's.
func DNSLabel(value string, path *field.Path) field.ErrorList {
	return Problems(value, path, validation.IsDNS1123Label(value))
}

// DNSSubdomain validates a name such as a Secret's.
func DNSSubdomain(value string, path *field.Path) field.ErrorList {
	return Problems(value, path, validation.IsDNS1123Subdomain(value))
}

// RequiredName requires the name of an object, and validates it.
func RequiredName(name string, path *field.Path, sentence string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, sentence)}
	}
	return DNSSubdomain(name, path)
}

// Labels validates labels, or a selector that consists of them.
func Labels(set map[string]string, path *field.Path) field.ErrorList {
	return ordered(metav1validation.ValidateLabels(set, path))
}

// Annotations validates the names and the size of annotations.
func Annotations(set map[string]string, path *field.Path) field.ErrorList {
	return ordered(apivalidation.ValidateAnnotations(set, path))
}

// LabelSelector validates a selector. An absent one is valid.
func LabelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
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

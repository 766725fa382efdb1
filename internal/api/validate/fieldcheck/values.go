// Package fieldcheck validates single fields of several kinds: values, names, labels, and a pod's placement on nodes. Each
// function returns the errors of one field, with its path.
//
// It must know neither VMIs nor other objects of Drydock. Its callers know an object's fields, and which depend on each
// other.
package fieldcheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf requires one of the allowed values. An empty value is valid.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// RequiredOneOf is OneOf for a value that must be set.
func RequiredOneOf(value string, path *field.Path, allowed []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be one of %s", strings.Join(allowed, ", ")))}
	}
	return OneOf(value, path, allowed...)
}

// PullPolicy validates the pull policy of a container image.
func PullPolicy(policy corev1.PullPolicy, path *field.Path) field.ErrorList {
	return OneOf(policy, path, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// ExactlyOne refuses a choice of none or several. chosen has the names of the fields.
func ExactlyOne(path *field.Path, chosen []string, sentence string) field.ErrorList {
	switch len(chosen) {
	case 1:
		return nil
	case 0:
		return field.ErrorList{field.Required(path, sentence)}
	}
	var errs field.ErrorList
	for _, extra := range chosen[1:] {
		errs = append(errs, field.Forbidden(path.Child(extra), "can't be set beside "+chosen[0]+": "+sentence))
	}
	return errs
}

// Unique refuses a value that was seen before, and adds it to seen. An empty value is ignored.
func Unique[K comparable](seen map[K]bool, value K, path *field.Path) field.ErrorList {
	var none K
	if value == none {
		return nil
	}
	if seen[value] {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen[value] = true
	return nil
}

// Pattern requires that a value matches an expression. An empty value is valid.
func Pattern(value string, path *field.Path, re *regexp.Regexp, sentence string) field.ErrorList {
	if value == "" || re.MatchString(value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, sentence)}
}

// Quantity returns the error that a rule about quantities found, nil for none, as one of the field.
func Quantity(q resource.Quantity, path *field.Path, wrong error) field.ErrorList {
	if wrong == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, q.String(), wrong.Error())}
}

// Problems returns the messages of one of Kubernetes' functions IsX as errors of the field.
func Problems(value string, path *field.Path, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

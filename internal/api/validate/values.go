package validate

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An empty value is valid.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func pullPolicy(policy corev1.PullPolicy, path *field.Path) field.ErrorList {
	return oneOf(policy, path, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// exactlyOne refuses a choice of none or several. chosen has the names of the fields.
func exactlyOne(path *field.Path, chosen []string, sentence string) field.ErrorList {
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

// An empty value is ignored.
func unique[K comparable](seen map[K]bool, value K, path *field.Path) field.ErrorList {
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

func label(value string, path *field.Path) field.ErrorList {
	return sentences(value, path, validation.IsDNS1123Label(value))
}

func subdomain(value string, path *field.Path) field.ErrorList {
	return sentences(value, path, validation.IsDNS1123Subdomain(value))
}

func sentences(value string, path *field.Path, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}

// maxSMBIOS bounds, in bytes, a text in SMBIOS.
const maxSMBIOS = 256

// smbiosText validates a text that the guest reads in SMBIOS, and QEMU in its arguments.
func smbiosText(value string, path *field.Path) field.ErrorList {
	if len(value) > maxSMBIOS {
		return field.ErrorList{field.TooLong(path, value, maxSMBIOS)}
	}
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return field.ErrorList{field.Invalid(path, value, "must be made of characters that can be printed, in one line")}
	}
	return nil
}

var word = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)

func pattern(value string, path *field.Path, re *regexp.Regexp, sentence string) field.ErrorList {
	if value == "" || re.MatchString(value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, sentence)}
}

package machine

import (
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

type smbiosTable []string

func (t *smbiosTable) add(name, value string) {
	if value != "" {
		*t = append(*t, name+"="+escape(value))
	}
}

func (t smbiosTable) text() string { return strings.Join(t, ",") }

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func isTrue(p *bool) bool { return p != nil && *p }

func isFalse(p *bool) bool { return p != nil && !*p }

// A feature that is present is on by default.
func isOn(f *v1.FeatureState) bool { return !isFalse(f.Enabled) }

package machine

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestHostnameIsOneLabel(t *testing.T) {
	long := strings.Repeat("a", 62)
	tests := map[string]struct{ name, hostname, want string }{
		"the VMI's name":                         {"web", "", "web"},
		"the first part of the VMI's name":       {"web.example", "", "web"},
		"the VMI's own choice":                   {"web", "chosen", "chosen"},
		"a name too long":                        {long + "bcd", "", long + "b"},
		"a name that would end in a hyphen then": {long + "-bcd", "", long},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Name, vmi.Spec.Hostname = test.name, test.hostname
			if got := Hostname(vmi); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

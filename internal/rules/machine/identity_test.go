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

func TestAnInterfacesOwnAddressComesFirst(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace = "web", "shop"
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "given", MacAddress: "DE-AD-00-00-BE-AF"}, {Name: "open"}, {Name: "strange", MacAddress: "none"},
	}
	for iface, want := range map[string]string{"given": "de:ad:00:00:be:af", "strange": "none"} {
		if got := MAC(vmi, iface); got != want {
			t.Errorf("%s: %s, want %s", iface, got, want)
		}
	}
	open := MAC(vmi, "open")
	if !strings.HasPrefix(open, "02:") || open == MAC(vmi, "other") {
		t.Errorf("an interface without an address has %s", open)
	}
	// Without a firmware UUID the VMI's name counts, with one it does not.
	vmi.Spec.Domain.Firmware = &v1.Firmware{}
	if got := MAC(vmi, "open"); got != open {
		t.Errorf("firmware that says nothing makes %s of %s", got, open)
	}
	vmi.Spec.Domain.Firmware.UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	if MAC(vmi, "open") == open {
		t.Error("the firmware's UUID counts for nothing")
	}
	named := MAC(vmi, "open")
	if vmi.Name = "renamed"; MAC(vmi, "open") != named {
		t.Error("a guest that is known by its UUID gets another address with another name")
	}
}

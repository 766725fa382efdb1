package accelerator

import (
	"errors"
	"testing"
)

func TestChoose(t *testing.T) {
	broken := errors.New("the guest stopped")
	for name, c := range map[string]struct {
		wanted      string
		kvm         error
		want, error string
	}{
		"nothing asked for":    {"", nil, "tcg", ""},
		"emulation":            {"tcg", broken, "tcg", ""},
		"KVM that works":       {"kvm", nil, "kvm", ""},
		"KVM that is broken":   {"kvm", broken, "", "DRYDOCK_ACCEL is kvm, and KVM can't be used here: the guest stopped"},
		"something else, xen?": {"xen", nil, "", `DRYDOCK_ACCEL is "xen"; it must be kvm, tcg or empty`},
	} {
		got, err := choose(c.wanted, func() error { return c.kvm })
		if got != c.want || (err == nil) != (c.error == "") || err != nil && err.Error() != c.error {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

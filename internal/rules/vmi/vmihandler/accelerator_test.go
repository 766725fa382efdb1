package vmihandler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// A guest that starts must use KVM where it can. One that arrives must keep its accelerator.
func TestWhatAQEMUIsStartedWith(t *testing.T) {
	const (
		kvm      = corev1.ConditionTrue
		emulated = corev1.ConditionFalse
	)
	for name, c := range map[string]struct {
		says   corev1.ConditionStatus
		at     Role
		usable bool
		want   bool
		refuse string
	}{
		"it starts where KVM is":                             {"", Home, true, true, ""},
		"it starts where none is":                            {"", Home, false, false, ""},
		"it starts anew, whatever was said before":           {emulated, Home, true, true, ""},
		"it starts anew without KVM, whatever was said":      {kvm, Home, false, false, ""},
		"an accelerated one arrives where KVM is":            {kvm, Destination, true, true, ""},
		"an accelerated one arrives where none is":           {kvm, Destination, false, false, "the guest runs with KVM"},
		"an emulated one arrives where KVM is":               {emulated, Destination, true, false, ""},
		"an emulated one arrives where none is":              {emulated, Destination, false, false, ""},
		"one of which nothing is said arrives where KVM is":  {"", Destination, true, true, ""},
		"one of which nothing is said arrives where none is": {"", Destination, false, false, ""},
		"a word that means nothing":                          {corev1.ConditionUnknown, Destination, true, true, ""},
	} {
		vmi := instance()
		if c.says != "" {
			vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: vmistatus.Accelerated, Status: c.says})
		}
		got, err := UsesKVM(vmi, c.at, c.usable)
		if got != c.want || (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, c.want, c.refuse)
		}
	}
}

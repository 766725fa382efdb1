package dumpspace

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestTheSpaceIsForTheMostMemory(t *testing.T) {
	amount := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: amount("1Gi")}
	for name, test := range map[string]struct {
		has  *v1.MemoryStatus
		want string
	}{
		"nothing is reported":      {nil, "1124Mi"},
		"as at the start":          {&v1.MemoryStatus{GuestCurrent: amount("1Gi"), GuestRequested: amount("1Gi")}, "1124Mi"},
		"memory is being plugged":  {&v1.MemoryStatus{GuestCurrent: amount("1Gi"), GuestRequested: amount("2Gi")}, "2148Mi"},
		"memory is being released": {&v1.MemoryStatus{GuestCurrent: amount("3Gi"), GuestRequested: amount("1Gi")}, "3172Mi"},
	} {
		vmi.Status.Memory = test.has
		if got, want := Of(vmi), amount(test.want).Value(); got != want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
		if claim := Claim(vmi); claim < Of(vmi)/100*109 || claim%(1<<20) != 0 {
			t.Errorf("%s: a claim of %d bytes for %d", name, claim, Of(vmi))
		}
	}
}

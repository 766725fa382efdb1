package podlabels

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func TestALabelOfAVMIReachesAPodUnlessRulesGoByIt(t *testing.T) {
	labels := map[string]string{"app": "web", "team": "a", layout.ClaimLabel("data"): "", layout.ClaimLabelPrefix: ""}
	for _, label := range Labels() {
		labels[label] = "x"
	}
	Without(labels)
	if diff := cmp.Diff(map[string]string{"app": "web", "team": "a"}, labels); diff != "" {
		t.Error(diff)
	}
	for label, want := range map[string]bool{
		v1.AppLabel: true, layout.ClaimLabel("data"): true, "app": false, v1.VirtualMachineInstanceIDLabel: false, "claim.drydock.dev": false,
	} {
		if got := IsLabel(label); got != want {
			t.Errorf("rules go by %s: %v, want %v", label, got, want)
		}
	}
}

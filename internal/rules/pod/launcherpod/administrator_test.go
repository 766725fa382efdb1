package launcherpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// A tenant must not reach another node by a label of his own.
func TestTheAdministratorsWordOnWhereGuestsRunCounts(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.DefaultRuntimeClass = "guests"
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{NodeSelectors: map[string]string{"pool": "guests"}}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.NodeSelector = map[string]string{"pool": "databases", "disk": "fast"}
	var spec corev1.PodSpec
	Constrain(&spec, vmi, clusterconfig.FromKubeVirt(kv))
	want := map[string]string{"pool": "guests", "disk": "fast", v1.NodeSchedulable: "true"}
	if diff := cmp.Diff(want, spec.NodeSelector); diff != "" {
		t.Error(diff)
	}
	if c := spec.RuntimeClassName; c == nil || *c != "guests" {
		t.Errorf("the runtime class is %v", c)
	}
	if vmi.Spec.NodeSelector["pool"] != "databases" || len(vmi.Spec.NodeSelector) != 2 {
		t.Errorf("the VMI's own selector is %v now", vmi.Spec.NodeSelector)
	}
}

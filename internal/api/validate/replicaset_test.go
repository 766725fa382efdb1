package validate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestUpdateOfReplicaSet(t *testing.T) {
	old := &v1.VirtualMachineInstanceReplicaSet{Spec: v1.VirtualMachineInstanceReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: good(t).Spec.Template,
	}}
	scaled := old.DeepCopy()
	scaled.Spec.Replicas = new(int32(3))
	if errs := ReplicaSet(scaled, old, settings); len(errs) > 0 {
		t.Errorf("scaling is refused: %v", errs.ToAggregate())
	}
	moved := old.DeepCopy()
	moved.Spec.Selector.MatchLabels = map[string]string{"kubevirt.io/size": "small"}
	if diff := cmp.Diff([]string{"spec.selector"}, fields(ReplicaSet(moved, old, settings))); diff != "" {
		t.Error(diff)
	}
}

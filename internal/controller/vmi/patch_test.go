package vmi

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheDifferenceIsThatOfTheWholeObjects changes parts of a VMI, alone and
// together, and holds the patch against the one of the whole objects.
func TestTheDifferenceIsThatOfTheWholeObjects(t *testing.T) {
	was := func() *v1.VirtualMachineInstance {
		grace := int64(5)
		return &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7",
				Finalizers: []string{"f"}, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1", "b": "2"},
			},
			Spec:   v1.VirtualMachineInstanceSpec{Hostname: "h", TerminationGracePeriodSeconds: &grace},
			Status: v1.VirtualMachineInstanceStatus{Phase: v1.Pending, Reason: "why"},
		}
	}
	changes := []func(*v1.VirtualMachineInstance){
		func(vmi *v1.VirtualMachineInstance) { vmi.Finalizers = nil },
		func(vmi *v1.VirtualMachineInstance) { vmi.Labels = map[string]string{"l": "2", "m": "1"} },
		func(vmi *v1.VirtualMachineInstance) { delete(vmi.Annotations, "a") },
		func(vmi *v1.VirtualMachineInstance) { vmi.Annotations = nil },
		func(vmi *v1.VirtualMachineInstance) { vmi.Status = v1.VirtualMachineInstanceStatus{} },
		func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase, vmi.Status.NodeName = v1.Scheduled, "n" },
	}
	for which := range 1 << len(changes) {
		from, to := was(), was()
		for i, change := range changes {
			if which>>i&1 == 1 {
				change(to)
			}
		}
		want, err := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}).Data(to)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := difference(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if which == 0 {
			if patch != nil {
				t.Errorf("without a change there is a patch: %v", patch)
			}
			continue
		}
		if got, err := patch.Data(to); err != nil || string(got) != string(want) {
			t.Errorf("with the changes %b the patch is %s (%v), not %s", which, got, err, want)
		}
	}
}

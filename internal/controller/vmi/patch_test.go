package vmi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheDifferenceIsThatOfTheWholeObjects: the patch must equal the one from the whole objects.
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
		func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes = []v1.Volume{{Name: "v"}} },
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

func TestAnAbsentListAndAnEmptyOneAreNoDifference(t *testing.T) {
	absent := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "7"}}
	empty := absent.DeepCopy()
	empty.Finalizers, empty.Annotations = []string{}, map[string]string{}
	empty.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{}
	for name, of := range map[string][2]*v1.VirtualMachineInstance{"absent, then empty": {absent, empty}, "empty, then absent": {empty, absent}} {
		if patch, err := difference(of[0], of[1]); err != nil || patch != nil {
			t.Errorf("%s: there is a patch %v (%v)", name, patch, err)
		}
	}
}

// The loop compares so whenever it has nothing to write.
func BenchmarkDifference(b *testing.B) {
	from := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{v1.NodeNameLabel: "n"}}}
	from.Status = v1.VirtualMachineInstanceStatus{
		Phase: v1.Running, NodeName: "n", ActivePods: map[types.UID]string{"u": "n"},
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}, {Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}},
		Interfaces:   []v1.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: "10.0.0.5", IPs: []string{"10.0.0.5"}, MAC: "02:84:b9:bc:9d:9f"}},
		VolumeStatus: []v1.VolumeStatus{{Name: "root", Target: "vda", Size: 64 << 20}},
		PhaseTransitionTimestamps: []v1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: v1.Pending}, {Phase: v1.Scheduled}, {Phase: v1.Running}},
	}
	to := from.DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if patch, err := difference(from, to); err != nil || patch != nil {
			b.Fatalf("there is a patch %v (%v)", patch, err)
		}
	}
}

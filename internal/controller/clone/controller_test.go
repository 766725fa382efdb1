package clone

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// KubeVirt's clients wait for these events. Each must be emitted once, however often the clone is looked at.
func TestEventsThatClientsWaitFor(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1.AddToScheme, clonev1.AddToScheme, snapshotv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	of := &clonev1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "c1"},
		Spec: clonev1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "vm"},
			Target: &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "copy"},
		},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(of).WithStatusSubresource(of).Build()
	recorder := events.NewFakeRecorder(10)
	loop := &Reconciler{Client: c, Reader: c, Recorder: recorder, Now: time.Now}
	told := func() (all []string) {
		t.Helper()
		for range 2 {
			if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(of)}); err != nil {
				t.Fatal(err)
			}
		}
		for {
			select {
			case e := <-recorder.Events:
				all = append(all, e)
			default:
				return all
			}
		}
	}
	if all, want := told(), []string{"Normal SourceDoesNotExist the VM vm, which is to be cloned, does not exist"}; !slices.Equal(all, want) {
		t.Errorf("told %q, want %q", all, want)
	}
	if err := c.Create(t.Context(), &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1"}}); err != nil {
		t.Fatal(err)
	}
	if all, want := told(), []string{"Normal SnapshotCreated the snapshot tmp-snapshot-c1 was created"}; !slices.Equal(all, want) {
		t.Errorf("told %q, want %q", all, want)
	}
}

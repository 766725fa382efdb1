package replicaset

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// store is an API server, or a cache of one.
func store(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1.VirtualMachineInstanceReplicaSet{}).Build()
}

// shownBy is a client that reads from a cache and writes to the API server.
type shownBy struct {
	client.Client
	client.Reader
}

func (s shownBy) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return s.Reader.Get(ctx, key, object, options...)
}
func (s shownBy) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.Reader.List(ctx, list, options...)
}

// A replica set neither takes nor ends a guest by a cache that is older than the user's last word.
func TestAReplicaSetTouchesNoGuestByAnOldView(t *testing.T) {
	match := map[string]string{"app": "set"}
	set := func(replicas int32, version string) *v1.VirtualMachineInstanceReplicaSet {
		return &v1.VirtualMachineInstanceReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "set-uid", ResourceVersion: version},
			Spec: v1.VirtualMachineInstanceReplicaSetSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: match}, Template: &v1.VirtualMachineInstanceTemplateSpec{},
			},
		}
	}
	orphaned := set(1, "8")
	orphaned.DeletionTimestamp, orphaned.Finalizers = &metav1.Time{Time: time.Now()}, []string{metav1.FinalizerOrphanDependents}
	owned := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "guest", UID: "guest-uid", ResourceVersion: "3", Labels: match,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(orphaned, v1.VirtualMachineInstanceReplicaSetGroupVersionKind)}},
		Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	}
	free := owned.DeepCopy()
	free.ResourceVersion, free.OwnerReferences = "4", nil
	for name, c := range map[string]struct {
		cachedSet, storedSet     *v1.VirtualMachineInstanceReplicaSet
		cachedGuest, storedGuest *v1.VirtualMachineInstance
		stays, adopted           bool
	}{
		"it takes one that nobody owns":                 {set(1, "7"), set(1, "7"), free, free, true, true},
		"but not when it is deleted without its guests": {set(1, "7"), orphaned, free, free, true, false},
		"it ends one that is too many":                  {set(0, "7"), set(0, "7"), owned, owned, false, false},
		"but not one that was released":                 {set(0, "7"), set(0, "7"), owned, free, true, false},
		"nor one that it is asked for in the meantime":  {set(0, "7"), set(1, "8"), owned, owned, true, true},
		"nor when it is deleted without them":           {set(0, "7"), orphaned, owned, owned, true, true},
		"nor when it is gone":                           {set(0, "7"), nil, owned, owned, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := []client.Object{c.storedGuest.DeepCopy()}
			if c.storedSet != nil {
				stored = append(stored, c.storedSet.DeepCopy())
			}
			api := store(t, stored...)
			r := &Reconciler{
				Client: shownBy{api, store(t, c.cachedSet.DeepCopy(), c.cachedGuest.DeepCopy())}, Reader: api, Recorder: events.NewFakeRecorder(9), Now: time.Now,
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "set"}}); err != nil {
				t.Fatal(err)
			}
			var guest v1.VirtualMachineInstance
			err := api.Get(t.Context(), client.ObjectKeyFromObject(owned), &guest)
			if client.IgnoreNotFound(err) != nil || (err == nil) != c.stays {
				t.Fatalf("the guest stays: %v (%v), want %v", err == nil, err, c.stays)
			}
			if err == nil && (metav1.GetControllerOf(&guest) != nil) != c.adopted {
				t.Errorf("the guest's owners are %v", guest.OwnerReferences)
			}
		})
	}
}

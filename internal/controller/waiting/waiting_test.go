package waiting

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// indexer adds a manager's indexes to a cache for tests.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(object, field, extract)
	return nil
}

func TestWhatWaitsForAnObjectIsFound(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := snapshotv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	// In this test a restore waits unless it is labeled.
	on := func(r *snapshotv1.VirtualMachineRestore) []string {
		if len(r.Labels) > 0 {
			return nil
		}
		return []string{VM(r.Spec.Target.Name), Snapshot(r.Spec.VirtualMachineSnapshotName)}
	}
	if err := Register(t.Context(), indexer{b}, &snapshotv1.VirtualMachineRestore{}, on); err != nil {
		t.Fatal(err)
	}
	restore := func(namespace, name, vm, snapshot string, labels map[string]string) *snapshotv1.VirtualMachineRestore {
		r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		r.Spec.Target.Name, r.Spec.VirtualMachineSnapshotName = vm, snapshot
		return r
	}
	cluster := b.WithObjects(
		restore("shop", "of-both", "web", "web", nil),
		restore("shop", "of-the-vm", "web", "other", nil),
		restore("shop", "of-others", "other", "other", nil),
		restore("shop", "no-more", "web", "web", map[string]string{"ended": ""}),
		restore("lab", "elsewhere", "web", "web", nil),
	).Build()
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	for _, c := range []struct {
		object client.Object
		want   string
	}{
		{&v1.VirtualMachine{ObjectMeta: meta}, "[shop/of-both shop/of-the-vm]"},
		{&snapshotv1.VirtualMachineSnapshot{ObjectMeta: meta}, "[shop/of-both]"},
	} {
		if got := fmt.Sprint(For(t.Context(), cluster, &snapshotv1.VirtualMachineRestoreList{}, c.object)); got != c.want {
			t.Errorf("for the %T wait %s, want %s", c.object, got, c.want)
		}
	}
}

package maintenance

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/rules/maintenance"
)

// indexer adds a manager's indexes to a fake cache.
type indexer struct{ of *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.of.WithIndex(object, field, values)
	return nil
}

// TestWhoHasAClaimPlugged: the API server is asked when the cache shows no user.
func TestWhoHasAClaimPlugged(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	guest := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
	guest.Status.Phase = v1.Running
	guest.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	with := func(vmis ...client.Object) client.Client {
		b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vmis...)
		if err := claimusers.Register(t.Context(), indexer{b}); err != nil {
			t.Fatal(err)
		}
		return b.Build()
	}
	elsewhere := guest.DeepCopy()
	elsewhere.Namespace = "elsewhere"
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	for name, c := range map[string]struct {
		cache, api client.Client
		want       string
	}{
		"nobody":                    {with(), with(), ""},
		"a guest":                   {with(guest), with(guest), "other"},
		"one that is not seen yet":  {with(), with(guest), "other"},
		"one that may have gone":    {with(guest), with(), "other"},
		"one of another namespace":  {with(elsewhere), with(elsewhere), ""},
		"one that is the machine's": {with(named(guest, "vm")), with(named(guest, "vm")), ""},
	} {
		r := &Reconciler{Client: c.cache, Reader: c.api}
		got, err := r.plugged(t.Context(), vm, []string{"root", "data"})
		if err != nil || got.VMI != c.want || (got != maintenance.Plugged{}) != (got.Claim == "data") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func named(vmi *v1.VirtualMachineInstance, name string) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	out.Name = name
	return out
}

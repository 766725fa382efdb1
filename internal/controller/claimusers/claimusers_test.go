package claimusers

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func vmi(namespace, name string, volumes ...v1.VolumeSource) *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, source := range volumes {
		out.Spec.Volumes = append(out.Spec.Volumes, v1.Volume{VolumeSource: source})
	}
	return out
}

func TestUsersOfAClaim(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	data := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}
	leaving := vmi("ns", "leaving")
	leaving.Status.VolumeStatus = []v1.VolumeStatus{{PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	placed := vmi("ns", "placed", data)
	placed.Status.NodeName = "node-1"
	cache := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1.VirtualMachineInstance{}, index, claims).
		WithObjects(vmi("ns", "waiting", data), placed, leaving, vmi("ns", "other", v1.VolumeSource{}), vmi("elsewhere", "waiting", data)).Build()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	for name, c := range map[string]struct {
		counts func(*v1.VirtualMachineInstance) bool
		want   []string
	}{
		"all of the claim's namespace, by spec or by status": {func(*v1.VirtualMachineInstance) bool { return true },
			[]string{"ns/leaving", "ns/placed", "ns/waiting"}},
		"those that count": {func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.NodeName != "" }, []string{"ns/placed"}},
	} {
		var got []string
		for _, request := range Requests(t.Context(), cache, claim, c.counts) {
			got = append(got, request.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	broken := interceptor.NewClient(cache, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no cache")
	}})
	if _, err := List(t.Context(), broken, claim); err == nil || Requests(t.Context(), broken, claim, nil) != nil {
		t.Error("a cache that can't be read has users")
	}
}

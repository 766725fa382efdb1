package vm

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

type asked struct {
	client.Reader
	times int
	err   error
}

func (a *asked) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	a.times++
	if a.err == nil {
		class := unstructured.Unstructured{Object: map[string]any{"driver": "csi"}}
		class.SetName("fast")
		list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{class}
	}
	return a.err
}

func TestVolumeSnapshotClassesAreAskedForOnceInAWhile(t *testing.T) {
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	server, classes := &asked{err: errors.New("unreachable")}, &snapshotClasses{}
	if _, err := classes.list(t.Context(), server, began); err == nil {
		t.Error("an API server that can't be reached is taken for one without classes")
	}
	server.err = nil
	for _, step := range []struct {
		after time.Duration
		times int
	}{{0, 2}, {time.Minute - 1, 2}, {time.Minute, 3}} {
		got, err := classes.list(t.Context(), server, began.Add(step.after))
		if err != nil || len(got) != 1 || got[0].Name != "fast" || got[0].Driver != "csi" || server.times != step.times {
			t.Errorf("after %v: %+v, asked %d times, want %d (%v)", step.after, got, server.times, step.times, err)
		}
	}
}

// A claim that comes later must be in the status of a VM that nothing else happens to.
func TestAClaimThatComesLaterCanBeSnapshotted(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1"}, Spec: v1.VirtualMachineSpec{
		Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{
			Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}},
		}}}},
	}}
	if names := dataVolumeNames(vm); !slices.Equal(names, []string{"data"}) {
		t.Errorf("the VM is woken by %v", names)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vm, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "csi"}).
		WithStatusSubresource(vm).Build()
	r := &Reconciler{Client: c, Reader: &asked{}, Now: time.Now}
	enabled := func() (statuses []v1.VolumeSnapshotStatus, version string) {
		t.Helper()
		var now v1.VirtualMachine
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), &now); err != nil {
			t.Fatal(err)
		}
		if _, err := r.patchStatus(t.Context(), &now, now.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), &now); err != nil {
			t.Fatal(err)
		}
		return now.Status.VolumeSnapshotStatuses, now.ResourceVersion
	}
	if got, _ := enabled(); len(got) != 1 || got[0].Enabled {
		t.Errorf("without a claim: %+v", got)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("local")}}
	if err := c.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	got, version := enabled()
	if len(got) != 1 || !got[0].Enabled {
		t.Errorf("with a claim: %+v", got)
	}
	if _, again := enabled(); again != version {
		t.Error("the status is written again, and nothing has changed")
	}
}

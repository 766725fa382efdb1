package datavolume

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// lagging returns a loop whose cache still shows deleted objects, and counts the requested deletions per pod. The API
// server no longer has the pods.
func lagging(t *testing.T, objects ...client.Object) (*Reconciler, map[string]int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme, cdiv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	asked := map[string]int{}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&cdiv1.DataVolume{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
				if _, ok := object.(*corev1.Pod); ok {
					asked[object.GetName()]++
				}
				return apierrors.NewNotFound(corev1.Resource("pods"), object.GetName())
			},
		}).Build()
	return &Reconciler{Client: api, Reader: api, Namespace: "kubevirt", Now: time.Now}, asked
}

func workerOf(owner client.Object, kind schema.GroupVersionKind, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: name, UID: types.UID("uid-of-" + name),
			Labels:          map[string]string{v1.AppLabel: datavolume.WorkerAppLabel},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
	}
}

func TestThePodsOfADataVolumeAreDeletedOnce(t *testing.T) {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "1234-5"},
		Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "ns", Name: "original"},
		}},
		Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded},
	}
	kind := cdiv1.SchemeGroupVersion.WithKind("DataVolume")
	worker := workerOf(dv, kind, datavolume.WorkerName(dv))
	source := workerOf(dv, kind, datavolume.SourcePodName(dv))
	r, asked := lagging(t, dv, worker, source)
	wake(t, r, dv, 3)
	if len(asked) != 2 || asked[worker.Name] != 1 || asked[source.Name] != 1 {
		t.Errorf("the deletions asked for are %v, want one of each pod", asked)
	}
}

func TestTheWorkerOfAnUploadClaimIsDeletedOnce(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"the claim is filled":              {layout.AnnUploadTarget: "", layout.AnnPodPhase: string(corev1.PodSucceeded)},
		"the claim is not marked any more": {layout.AnnContentType: "kubevirt"},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1234-5", Annotations: annotations}}
		worker := workerOf(claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), datavolume.UploadWorkerName(claim))
		r, asked := lagging(t, claim, worker)
		wake(t, &UploadClaims{Reconciler: r}, claim, 3)
		if len(asked) != 1 || asked[worker.Name] != 1 {
			t.Errorf("%s: the deletions asked for are %v, want one of the worker", name, asked)
		}
	}
}

func TestWhichChangesOfAClaimWakeTheLoopOfUploads(t *testing.T) {
	plain := &corev1.PersistentVolumeClaim{}
	marked := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{layout.AnnUploadTarget: ""}}}
	for name, c := range map[string]struct {
		from, to *corev1.PersistentVolumeClaim
		want     bool
	}{
		"one that takes none": {plain, plain, false},
		"one that takes one":  {marked, marked, true},
		"it is marked":        {plain, marked, true},
		"its mark is gone":    {marked, plain, true},
	} {
		if got := takesUpload().Update(event.UpdateEvent{ObjectOld: c.from, ObjectNew: c.to}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	told := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{layout.AnnOverwrite: "false"}}}
	if !takesUpload().Create(event.CreateEvent{Object: told}) {
		t.Error("it is not woken by a claim that lost its mark while nobody looked")
	}
	if takesUpload().Create(event.CreateEvent{Object: plain}) || !takesUpload().Create(event.CreateEvent{Object: marked}) {
		t.Error("it is woken by claims that are found by whether they are marked")
	}
}

// TestAClaimForgetsItsUploadBeforeItsWorkerIsDeleted: the permission must not outlive the worker.
func TestAClaimForgetsItsUploadBeforeItsWorkerIsDeleted(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1234-5", Annotations: map[string]string{
		layout.AnnOverwrite: "true", layout.AnnPodPhase: "Running", layout.AnnPodReady: "true", layout.AnnContentType: "kubevirt"}}}
	worker := workerOf(claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), datavolume.UploadWorkerName(claim))
	r, asked := lagging(t, claim, worker)
	var left []map[string]string
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			var now corev1.PersistentVolumeClaim
			if err := api.Get(ctx, client.ObjectKeyFromObject(claim), &now); err != nil {
				return err
			}
			left = append(left, now.Annotations)
			return api.Delete(ctx, object, options...)
		},
	})
	wake(t, &UploadClaims{Reconciler: r}, claim, 2)
	if asked[worker.Name] != 1 || len(left) == 0 {
		t.Fatalf("the deletions asked for are %v", asked)
	}
	for _, annotations := range left {
		if len(annotations) != 1 || annotations[layout.AnnContentType] == "" {
			t.Errorf("at a deletion the claim says %v", annotations)
		}
	}
}

// wake reconciles an object several times.
func wake(t *testing.T, loop reconcile.Reconciler, object client.Object, times int) {
	t.Helper()
	for range times {
		if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}); err != nil {
			t.Fatal(err)
		}
	}
}

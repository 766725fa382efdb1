package datavolume

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// Each case has an object's version in the cache and in the API server, empty for a deleted object, and whether one
// reconciliation makes a claim.
var versions = map[string]struct {
	shown, stored string
	makes         bool
}{
	"what the cache shows is the newest": {"7", "7", true},
	"somebody has written meanwhile":     {"7", "8", false},
	"it is gone":                         {"7", "", false},
}

// newest returns a loop whose API server has another version of the object than the cache, or none, and a counter of
// the claims that it makes.
func newest(t *testing.T, object client.Object, shown, stored string) (r *Reconciler, made *int) {
	t.Helper()
	claims := 0
	version := func(of string) []client.Object {
		if of == "" {
			return nil
		}
		copied := object.DeepCopyObject().(client.Object)
		copied.SetResourceVersion(of)
		return []client.Object{copied}
	}
	r, _ = lagging(t, version(shown)...)
	api, _ := lagging(t, version(stored)...)
	r.Reader = api.Client
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
				claim.CreationTimestamp = metav1.Now()
				claims++
			}
			return nil
		},
	})
	return r, &claims
}

func pendingImport() *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1234-5"},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/disk.qcow2"}},
			Storage: &cdiv1.StorageSpec{},
		},
		Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Pending},
	}
}

func TestNoClaimIsMadeOfWhatOnlyTheCacheShows(t *testing.T) {
	dv := pendingImport()
	for name, c := range versions {
		t.Run(name, func(t *testing.T) {
			r, made := newest(t, dv, c.shown, c.stored)
			wake(t, r, dv, 1)
			if (*made == 1) != c.makes {
				t.Errorf("made %d claims", *made)
			}
		})
	}
}

func TestNoWorkerIsMadeForAClaimThatOnlyTheCacheShows(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "disk", UID: "1234-5", Annotations: map[string]string{layout.AnnUploadTarget: ""},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	for name, c := range versions {
		t.Run(name, func(t *testing.T) {
			r, _ := newest(t, claim, c.shown, c.stored)
			// This is the first object that is made for any worker.
			begun := errors.New("a worker is being made")
			r.Settings = func(context.Context) (clusterconfig.Settings, error) { return clusterconfig.Settings{}, begun }
			loop := &UploadClaims{Reconciler: r}
			_, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
			if errors.Is(err, begun) != c.makes || err != nil && !c.makes {
				t.Errorf("it ends with the error %v", err)
			}
		})
	}
}

func TestAClaimThatIsInUseForLongIsLookedAtLessOften(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "disk", UID: "1234-5", ResourceVersion: "7", Annotations: map[string]string{layout.AnnUploadTarget: ""},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	user.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
	user.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
	r, _ := lagging(t, claim, user)
	now := time.Now()
	r.Now = func() time.Time { return now }
	loop := &UploadClaims{Reconciler: r}
	for _, step := range []struct{ later, after time.Duration }{{0, 5 * time.Second}, {time.Minute, 15 * time.Second}, {time.Hour, time.Minute}} {
		now = now.Add(step.later)
		result, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		if err != nil || result.RequeueAfter != step.after {
			t.Errorf("%v later: looked at again in %v, want %v: %v", step.later, result.RequeueAfter, step.after, err)
		}
	}
}

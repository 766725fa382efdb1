package datavolume

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// The API server refuses a claim, because of a quota say. The DataVolume must report why: with one write and one event,
// however often the loop tries.
func TestADataVolumeSaysWhyItsClaimIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ why, reason string }{
		"a quota": {"exceeded quota: small, requested: requests.storage=1Gi", "ErrExceededQuota"},
		"others":  {"no claims here", "ErrForbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			dv := pendingImport()
			r, _ := lagging(t, dv)
			recorder := events.NewFakeRecorder(10)
			r.Recorder = recorder
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), object.GetName(), errors.New(test.why))
				},
			})
			r.Reader = r.Client
			for range 3 {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(dv)}); err == nil {
					t.Fatal("it ends without an error, and is not tried again")
				}
			}
			var left cdiv1.DataVolume
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(dv), &left); err != nil {
				t.Fatal(err)
			}
			want := `creating the claim ns/disk: persistentvolumeclaims "disk" is forbidden: ` + test.why
			for _, kind := range []cdiv1.DataVolumeConditionType{cdiv1.DataVolumeBound, cdiv1.DataVolumeRunning} {
				if c := datavolume.Condition(&left, kind); c == nil || c.Status != corev1.ConditionFalse || c.Reason != test.reason || c.Message != want {
					t.Errorf("%s is %+v, want %s: %s", kind, c, test.reason, want)
				}
			}
			if len(recorder.Events) != 1 {
				t.Errorf("there are %d events, want one", len(recorder.Events))
			}
		})
	}
}

package restore

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// A changed claim, and a later DataVolume, may be another VM's.
func TestARestoreDeletesTheClaimsThatItObservedOnly(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	observed := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "root", UID: "claim", ResourceVersion: "3"}}
	changed := observed.DeepCopy()
	changed.ResourceVersion = "4"
	filler := func(uid types.UID) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "root", UID: uid}}
	}
	for name, c := range map[string]struct {
		claim                  *corev1.PersistentVolumeClaim
		filler                 *cdiv1.DataVolume
		claimStays, fillerStay bool
	}{
		"both":                       {observed, filler("dv"), false, false},
		"not a claim that changes":   {changed, filler("dv"), true, false},
		"nor a DataVolume made anew": {observed, filler("later"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.claim.DeepCopy(), c.filler).WithInterceptorFuncs(interceptor.Funcs{Delete: deleteByUID}).Build()
			o := restore.Observed{Fillers: map[string]types.UID{"root": "dv"}}
			if err := (&Reconciler{Client: api}).dropClaims(t.Context(), o, []*corev1.PersistentVolumeClaim{observed}); err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKeyFromObject(observed)
			if err := api.Get(t.Context(), key, &corev1.PersistentVolumeClaim{}); client.IgnoreNotFound(err) != nil || (err == nil) != c.claimStays {
				t.Errorf("the claim stays: %v, want %v", err == nil, c.claimStays)
			}
			if err := api.Get(t.Context(), key, &cdiv1.DataVolume{}); client.IgnoreNotFound(err) != nil || (err == nil) != c.fillerStay {
				t.Errorf("the DataVolume stays: %v, want %v", err == nil, c.fillerStay)
			}
		})
	}
}

// The fake API server does not compare UIDs.
func deleteByUID(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	asked := (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
	stored := object.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
		return err
	}
	if asked != nil && asked.UID != nil && *asked.UID != stored.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("another object has the name"))
	}
	return c.Delete(ctx, object, options...)
}

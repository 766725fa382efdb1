package datavolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// copyOf is a DataVolume of the namespace ns whose source is in the namespace golden.
func copyOf(uid types.UID) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: uid},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "snap"}}},
	}
}

func sourceOf(dv *cdiv1.DataVolume, edits ...func(*metav1.ObjectMeta)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: made(datavolume.SourcePodName(dv), dv, edits)}
	return pod
}

func restoredFor(dv *cdiv1.DataVolume, edits ...func(*metav1.ObjectMeta)) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: made(datavolume.RestoredName(dv), dv, edits)}
}

func made(name string, dv *cdiv1.DataVolume, edits []func(*metav1.ObjectMeta)) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: "golden", Name: name, UID: types.UID("uid-of-" + name),
		Labels:      map[string]string{datavolume.LabelApp: datavolume.LabelAppValue, v1.AppLabel: datavolume.WorkerAppLabel},
		Annotations: map[string]string{datavolume.AnnTarget: dv.Namespace + "/" + dv.Name},
	}
	for _, edit := range edits {
		edit(&out)
	}
	return out
}

func TestWhatAGoneDataVolumeLeftIsDeleted(t *testing.T) {
	dv, other := copyOf("11111111-2222-3333-4444-555555555555"), copyOf("33333333-4444-5555-6666-777777777777")
	unlabeled := func(m *metav1.ObjectMeta) { m.Labels = nil }
	unannotated := func(m *metav1.ObjectMeta) { m.Annotations = nil }
	renamed := func(m *metav1.ObjectMeta) { m.Name = "copy" }
	owned := func(m *metav1.ObjectMeta) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	ending := func(m *metav1.ObjectMeta) {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: time.Now()}, []string{"kubernetes.io/pvc-protection"}
	}
	both := []string{"Secret 11111111-2222-3333-4444-555555555555-source-pod", "Pod 11111111-2222-3333-4444-555555555555-source-pod"}
	for name, test := range map[string]struct {
		left          client.Object
		shown, stored *cdiv1.DataVolume
		want          []string
		after         time.Duration
	}{
		"a pod":                         {sourceOf(dv), nil, nil, both, 0},
		"a claim":                       {restoredFor(dv), nil, nil, []string{"PersistentVolumeClaim 11111111-2222-3333-4444-555555555555-snapshot"}, 0},
		"there is one of the same name": {sourceOf(dv), other, other, both, 0},
		"its DataVolume is there":       {sourceOf(dv), dv, dv, nil, leftoverEvery},
		"the cache does not show it":    {sourceOf(dv), nil, dv, nil, leftoverEvery},
		"the cache shows another one":   {restoredFor(dv), other, dv, nil, leftoverEvery},
		"the cache still shows it":      {restoredFor(dv), dv, nil, nil, leftoverEvery},
		"a user's pod":                  {sourceOf(dv, unlabeled), nil, nil, nil, 0},
		"a user's claim":                {restoredFor(dv, unlabeled), nil, nil, nil, 0},
		"a pod that names none":         {sourceOf(dv, unannotated), nil, nil, nil, 0},
		"a claim that names none":       {restoredFor(dv, unannotated), nil, nil, nil, 0},
		"a claim without its UID":       {restoredFor(dv, renamed), nil, nil, nil, 0},
		"the garbage collector's":       {restoredFor(dv, owned), nil, nil, nil, 0},
		"it is being deleted":           {restoredFor(dv, ending), nil, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := func(dv *cdiv1.DataVolume) []client.Object {
				if dv == nil {
					return []client.Object{test.left.DeepCopyObject().(client.Object)}
				}
				return []client.Object{test.left.DeepCopyObject().(client.Object), dv.DeepCopy()}
			}
			r, _ := lagging(t, objects(test.shown)...)
			api, _ := lagging(t, objects(test.stored)...)
			r.Reader = api.Client
			var deleted []string
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
					deleted = append(deleted, strings.TrimPrefix(fmt.Sprintf("%T ", object), "*v1.")+object.GetName())
					if object.GetNamespace() != "golden" {
						t.Errorf("%s is in the namespace %s", object.GetName(), object.GetNamespace())
					}
					return nil
				},
			})
			result, err := (&Leftovers{Reconciler: r}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(test.left)})
			if err != nil || result.RequeueAfter != test.after {
				t.Errorf("it looks again after %s (%v), want %s", result.RequeueAfter, err, test.after)
			}
			if diff := cmp.Diff(test.want, deleted); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheDeletionOfADataVolumeWakesWhatIsElsewhere(t *testing.T) {
	here := copyOf("11111111-2222-3333-4444-555555555555")
	here.Spec.Source.Snapshot.Namespace = "ns"
	refers := copyOf("11111111-2222-3333-4444-555555555555")
	namespace := "images"
	refers.Spec.Source, refers.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Namespace: &namespace, Name: "debian"}
	for name, c := range map[string]struct {
		dv   *cdiv1.DataVolume
		want []string
	}{
		"elsewhere": {copyOf("11111111-2222-3333-4444-555555555555"), []string{"golden/11111111-2222-3333-4444-555555555555-source-pod", "golden/11111111-2222-3333-4444-555555555555-snapshot"}},
		"by a name": {refers, []string{"images/11111111-2222-3333-4444-555555555555-source-pod", "images/11111111-2222-3333-4444-555555555555-snapshot"}},
		"here":      {here, nil},
		"nowhere":   {pendingImport(), nil},
	} {
		var got []string
		for _, request := range elsewhere(t.Context(), c.dv) {
			got = append(got, request.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhichClaimsWakeADataVolume(t *testing.T) {
	dv := copyOf("11111111-2222-3333-4444-555555555555")
	r, _ := lagging(t, dv)
	in := func(namespace string) func(*metav1.ObjectMeta) {
		return func(m *metav1.ObjectMeta) { m.Namespace = namespace }
	}
	named := func(name string) func(*metav1.ObjectMeta) {
		return func(m *metav1.ObjectMeta) { m.Name = name }
	}
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		wakes bool
	}{
		"the one that was made for it":          {restoredFor(dv), true},
		"one of its namespace":                  {restoredFor(dv, in("ns"), named("disk")), true},
		"a tenant's":                            {restoredFor(dv, in("evil"), named("disk")), false},
		"a tenant's that ends like one":         {restoredFor(dv, in("evil"), named("9-9-snapshot")), false},
		"one for an earlier one of its name":    {restoredFor(copyOf("0-1")), false},
		"one that names a DataVolume of no one": {restoredFor(dv, func(m *metav1.ObjectMeta) { m.Annotations[datavolume.AnnTarget] = "ns/none" }), false},
	} {
		var woken []string
		for _, request := range r.ofClaim(t.Context(), c.claim) {
			woken = append(woken, request.String())
		}
		if slices.Contains(woken, "ns/copy") != c.wakes {
			t.Errorf("%s: wakes %v", name, woken)
		}
	}
}

// The users of a source's namespace can exchange the Secret and the pod that a clone has there.
func TestAnExchangedSecretHoldsNothingUp(t *testing.T) {
	dv := copyOf("11111111-2222-3333-4444-555555555555")
	dv.DeletionTimestamp, dv.Finalizers = &metav1.Time{Time: time.Now()}, []string{datavolume.Finalizer}
	byPolicy := apierrors.NewForbidden(corev1.Resource("secrets"), "11111111-2222-3333-4444-555555555555-source-pod",
		errors.New("ValidatingAdmissionPolicy 'virt-controller-secrets' with binding 'virt-controller-secrets' denied request: no"))
	byPolicy.ErrStatus.Reason, byPolicy.ErrStatus.Code = metav1.StatusReasonInvalid, 422
	for name, c := range map[string]struct {
		answer error
		beside []client.Object
		ends   bool
	}{
		"the Secret is not Drydock's":   {byPolicy, nil, true},
		"nor is the pod":                {byPolicy, []client.Object{sourceOf(dv, func(m *metav1.ObjectMeta) { m.Labels = nil })}, true},
		"virt-controller has no rights": {apierrors.NewForbidden(corev1.Resource("secrets"), "11111111-2222-3333-4444-555555555555-source-pod", errors.New("no RBAC policy matched")), nil, false},
		"the API server is away":        {errors.New("away"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := lagging(t, append(c.beside, dv.DeepCopy())...)
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
					if _, is := object.(*corev1.Secret); is {
						return c.answer
					}
					return fmt.Errorf("%s is not to be deleted", object.GetName())
				},
			})
			r.Reader = r.Client
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(dv)})
			gone := apierrors.IsNotFound(r.Client.Get(t.Context(), client.ObjectKeyFromObject(dv), &cdiv1.DataVolume{}))
			if gone != c.ends || (err == nil) != c.ends {
				t.Errorf("the DataVolume is gone: %v (%v), want %v", gone, err, c.ends)
			}
		})
	}
	policies, err := os.ReadFile("../../../config/rbac/controller-policy.yaml")
	if err != nil || !strings.Contains(string(policies), "name: "+secretPolicy+"\n") {
		t.Errorf("there is no policy %s (%v)", secretPolicy, err)
	}
}

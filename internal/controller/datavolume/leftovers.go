package datavolume

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// leftoverEvery is how often the DataVolume of a source pod or a restored claim is looked for, besides at its deletion.
const leftoverEvery = 5 * time.Minute

// Leftovers is the loop that deletes source pods and restored claims in other namespaces after their DataVolumes. A
// request names the pod or the claim.
type Leftovers struct{ *Reconciler }

// SetupWithManager registers the loop.
func (l *Leftovers) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	made := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool { return datavolume.MayBeLeft(object) }))
	return ctrl.NewControllerManagedBy(mgr).
		Named("dataleftover").
		Watches(&corev1.PersistentVolumeClaim{}, &handler.EnqueueRequestForObject{}, made).
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, made).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(elsewhere), builder.WithPredicates(predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			UpdateFunc:  func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		WithOptions(pace).
		Complete(l)
}

// elsewhere returns the objects that a DataVolume may have in another namespace.
func elsewhere(_ context.Context, object client.Object) []reconcile.Request {
	dv, is := object.(*cdiv1.DataVolume)
	if !is {
		return nil
	}
	namespace, _, _ := datavolume.SourceOf(&dv.Spec, dv.Namespace)
	if namespace == "" || namespace == dv.Namespace {
		return nil
	}
	var out []reconcile.Request
	for _, name := range []string{datavolume.SourcePodName(dv), datavolume.RestoredName(dv)} {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return out
}

// Reconcile deletes one pod or claim if its DataVolume is gone.
func (l *Leftovers) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	installed, err := cdi.Installed(ctx, l.Client, l.Reader)
	if err != nil {
		return ctrl.Result{}, err
	}
	var left client.Object
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		found, err := versioned.Find(ctx, l.Client, "what a DataVolume may have left,", req.NamespacedName, object)
		if err != nil {
			return ctrl.Result{}, err
		}
		if found && object.GetDeletionTimestamp() == nil && datavolume.MayBeLeft(object) {
			left = object
		}
	}
	if left == nil {
		return ctrl.Result{}, nil
	}
	if installed != "" {
		return ctrl.Result{RequeueAfter: leftoverEvery}, nil
	}
	gone, err := l.gone(ctx, left)
	if err != nil || !gone {
		return ctrl.Result{RequeueAfter: leftoverEvery}, err
	}
	ctrl.LoggerFrom(ctx).Info("deleting what a DataVolume left that is gone", "object", client.ObjectKeyFromObject(left),
		"datavolume", left.GetAnnotations()[datavolume.AnnTarget])
	if _, is := left.(*corev1.Pod); is {
		// The pod is deleted after its Secret, which nothing else names.
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: left.GetNamespace(), Name: left.GetName()}}
		if err := l.delete(ctx, secret); err != nil {
			return ctrl.Result{}, err
		}
	}
	_, err = deletion.Exact(ctx, l.Client, left, "what a DataVolume left that is gone,")
	return ctrl.Result{}, err
}

// gone reports whether the API server has no DataVolume for which the object was made. The cache is only a reason to
// ask.
func (l *Leftovers) gone(ctx context.Context, left client.Object) (bool, error) {
	target, uid, _ := datavolume.MadeFor(left)
	for _, reader := range []client.Reader{l.Client, l.Reader} {
		dv, err := versioned.Read[cdiv1.DataVolume](ctx, reader, "the DataVolume", target)
		if err != nil || dv != nil && dv.UID == uid {
			return false, err
		}
	}
	return true, nil
}

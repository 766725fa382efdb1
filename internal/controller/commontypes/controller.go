// Package commontypes is the loop that deploys or removes the instance types and preferences that come with
// Drydock, as the KubeVirt object configures.
//
// It owns those objects until somebody else changes them. The rules' package of that name decides. It must not touch a
// namespace's types or preferences, nor any VM.
package commontypes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// Reconciler is the loop. All exported fields are required.
type Reconciler struct {
	Client client.Client
	// KubeVirt reads the cache, nil for none.
	KubeVirt func(context.Context) (*v1.KubeVirt, error)
	Recorder events.EventRecorder

	// told has the last report for each kind. The loop has one worker.
	told map[string]report
}

// theOne is the only request: all objects are handled together.
var theOne = reconcile.Request{NamespacedName: client.ObjectKey{Name: clusterconfig.Name}}

// SetupWithManager registers the loop. It runs at the start, since no object may exist that wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	wake := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{theOne}
	})
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(theOne)
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("commontypes").
		WatchesRawSource(first).
		Watches(&v1.KubeVirt{}, wake, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&instancetypev1.VirtualMachineClusterInstancetype{}, wake).
		Watches(&instancetypev1.VirtualMachineClusterPreference{}, wake).
		WithOptions(pace).
		Complete(r)
}

// Reconcile handles all common types and preferences.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	kv, err := r.KubeVirt(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	enabled := clusterconfig.FromKubeVirt(kv).CommonTypes
	var types instancetypev1.VirtualMachineClusterInstancetypeList
	if err := r.Client.List(ctx, &types); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the instance types of the cluster: %w", err)
	}
	var preferences instancetypev1.VirtualMachineClusterPreferenceList
	if err := r.Client.List(ctx, &preferences); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the preferences of the cluster: %w", err)
	}
	planned := commontypes.PlanInstancetypes(enabled, pointers(types.Items))
	r.reportLeft(ctx, kv, instancetype.KindClusterType, planned.Left())
	if err := act(ctx, r.Client, instancetype.KindClusterType, planned); err != nil {
		return ctrl.Result{}, err
	}
	preferred := commontypes.PlanPreferences(enabled, pointers(preferences.Items))
	r.reportLeft(ctx, kv, instancetype.KindClusterPreference, preferred.Left())
	return ctrl.Result{}, act(ctx, r.Client, instancetype.KindClusterPreference, preferred)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// A conflict is left to the next round, which the other write enqueues.
func act[T client.Object](ctx context.Context, c client.Client, kind string, p commontypes.Plan[T]) error {
	for _, object := range p.Create {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the %s %s: %w", kind, object.GetName(), err)
		}
	}
	for _, object := range p.Update {
		if err := c.Update(ctx, object); err != nil && !versioned.Overtaken(err) {
			return fmt.Errorf("updating the %s %s: %w", kind, object.GetName(), err)
		}
	}
	for _, object := range p.Delete {
		// Only the judged version is deleted: an object that a user changed is not Drydock's any more.
		err := deletion.AsSeen(ctx, c, object)
		if err != nil && !versioned.Overtaken(err) {
			return fmt.Errorf("deleting the %s %s: %w", kind, object.GetName(), err)
		}
	}
	return nil
}

// report is the last message about the objects of one kind.
type report struct {
	// left names the objects that are left as they are.
	left string
	// event means that there was a KubeVirt object for the event.
	event bool
}

// reportLeft reports once which objects are left as they are, and again for a KubeVirt object.
func (r *Reconciler) reportLeft(ctx context.Context, kv *v1.KubeVirt, kind, left string) {
	now := report{left: left, event: kv != nil}
	if r.told[kind] == now {
		return
	}
	if r.told == nil {
		r.told = map[string]report{}
	}
	r.told[kind] = now
	if left == "" {
		return
	}
	ctrl.LoggerFrom(ctx).Info("common objects of the cluster are not as they come with Drydock", "kind", kind, "left", left)
	if kv != nil {
		r.Recorder.Eventf(kv, nil, corev1.EventTypeNormal, "CommonInstancetypesLeft", "DeployCommonInstancetypes", "%s %s", kind, left)
	}
}

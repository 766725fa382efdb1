// Package claimsize is the loop that reports grown claims in the status of running VMIs. virt-handler grows the disks, but
// watches no claims.
//
// It owns persistentVolumeClaimInfo.capacity and .requests of a running VMI's volume status. It must not touch
// claims, nor anything else of a VMI.
package claimsize

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// again is the pause after a conflict, in which the cache catches up.
const again = time.Second

// Reconciler is the loop.
type Reconciler struct {
	Client client.Client
}

// SetupWithManager needs the index of package claimusers. Grown claims wake the loop, and VMIs that list new volumes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("claimsize").
		For(&v1.VirtualMachineInstance{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(claims(e.Object)) > 0 }, // also after this process restarts
			UpdateFunc: func(e event.UpdateEvent) bool {
				return len(claims(e.ObjectOld)) != len(claims(e.ObjectNew))
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.users), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, ok := e.ObjectOld.(*corev1.PersistentVolumeClaim)
				after, alike := e.ObjectNew.(*corev1.PersistentVolumeClaim)
				return ok && alike && !equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity)
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(pace).
		Complete(r)
}

func claims(o client.Object) []string {
	if vmi, ok := o.(*v1.VirtualMachineInstance); ok {
		return volumeclaim.InStatus(vmi)
	}
	return nil
}

func (r *Reconciler) users(ctx context.Context, claim client.Object) []reconcile.Request {
	return claimusers.Requests(ctx, r.Client, claim, func(vmi *v1.VirtualMachineInstance) bool {
		return slices.Contains(claims(vmi), claim.GetName())
	})
}

// Reconcile updates one VMI's sizes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vmi := &v1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, req.NamespacedName, vmi); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !vmi.IsRunning() {
		return ctrl.Result{}, nil
	}
	sizes := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range claims(vmi) {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the claim", types.NamespacedName{Namespace: vmi.Namespace, Name: name})
		if err != nil {
			return ctrl.Result{}, err
		}
		sizes[name] = claim
	}
	current := vmi.DeepCopy()
	if !Update(current.Status.VolumeStatus, sizes) {
		return ctrl.Result{}, nil
	}
	err := r.Client.Patch(ctx, current, client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("writing the sizes of the claims of VMI %s: %w", req, err)
	}
	return ctrl.Result{}, nil
}

// Update sets the claims' sizes in a volume status and reports whether any has changed.
func Update(list []v1.VolumeStatus, claims map[string]*corev1.PersistentVolumeClaim) bool {
	changed := false
	for i := range list {
		info := list[i].PersistentVolumeClaimInfo
		if info == nil || claims[info.ClaimName] == nil {
			continue
		}
		claim := claims[info.ClaimName]
		if !equality.Semantic.DeepEqual(info.Capacity, claim.Status.Capacity) {
			info.Capacity, info.Requests = claim.Status.Capacity, claim.Spec.Resources.Requests
			changed = true
		}
	}
	return changed
}

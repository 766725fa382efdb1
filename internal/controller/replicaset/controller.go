// Package replicaset is the loop that maintains the number of VMIs of a VirtualMachineInstanceReplicaSet.
//
// It owns which VMIs a replica set has, and its status. It must not change a VMI beyond its owner reference.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/vmi/replicaset"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time

	written mutationcache.Memory[*v1.VirtualMachineInstanceReplicaSet]
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstancereplicaset").
		For(&v1.VirtualMachineInstanceReplicaSet{}).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.setsOf)).
		WithOptions(pace).
		Complete(r)
}

// setsOf returns the replica sets that own a VMI or could adopt it.
func (r *Reconciler) setsOf(ctx context.Context, vmi client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(vmi); owner != nil {
		if owner.Kind != v1.VirtualMachineInstanceReplicaSetGroupVersionKind.Kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: vmi.GetNamespace(), Name: owner.Name}}}
	}
	var list v1.VirtualMachineInstanceReplicaSetList
	if err := r.Client.List(ctx, &list, client.InNamespace(vmi.GetNamespace())); err != nil {
		logs.VMI(ctrl.LoggerFrom(ctx), vmi).Error(err, "listing the replica sets beside a VMI")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(vmi.GetLabels())) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile handles one replica set.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cached v1.VirtualMachineInstanceReplicaSet
	if err := r.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		r.written.Forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	rs := r.written.Newer(&cached)
	if rs.Spec.Template == nil {
		return ctrl.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return ctrl.Result{}, reconcile.TerminalError(fmt.Errorf("reading the selector of replica set %s: %w", req.NamespacedName, err))
	}
	var list v1.VirtualMachineInstanceList
	// The VMIs are only read: copying all of a namespace would cost more than the decision.
	if err := r.Client.List(ctx, &list, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the VMIs of replica set %s: %w", req.NamespacedName, err)
	}
	vmis := make([]*v1.VirtualMachineInstance, len(list.Items))
	for i := range list.Items {
		vmis[i] = &list.Items[i]
	}
	p := replicaset.Decide(rs, selector, vmis, r.Now())
	if len(p.Adopt)+len(p.Remove) > 0 {
		// A replica set that is deleted with orphaned dependents has released its VMIs: the garbage collector would
		// delete one that it adopts again. A newer version wakes the loop.
		if current, err := versioned.Current(ctx, r.Reader, "the replica set", rs); err != nil || !current {
			return ctrl.Result{}, err
		}
	}
	failure := r.apply(ctx, rs, p)
	return ctrl.Result{RequeueAfter: p.After}, errors.Join(failure, r.patchStatus(ctx, rs, p.Reported(failure, r.Now())))
}

// A failure for one VMI does not stop the others.
func (r *Reconciler) apply(ctx context.Context, rs *v1.VirtualMachineInstanceReplicaSet, p replicaset.Plan) error {
	var failures []error
	for _, vmi := range p.Adopt {
		owned := vmi.DeepCopy()
		owned.OwnerReferences = append(owned.OwnerReferences,
			*metav1.NewControllerRef(rs, v1.VirtualMachineInstanceReplicaSetGroupVersionKind))
		failures = append(failures, r.patchOwners(ctx, vmi, owned))
	}
	for _, vmi := range p.Release {
		free := vmi.DeepCopy()
		free.OwnerReferences = slices.DeleteFunc(free.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == rs.UID })
		failures = append(failures, r.patchOwners(ctx, vmi, free))
	}
	for _, vmi := range p.Remove {
		// Only in the version that the replica set owned: it may have been released since. After a conflict, the other
		// write wakes the loop.
		deleted, err := versioned.Outcome("deleting VMI", vmi, deletion.AsSeen(ctx, r.Client, vmi))
		if failures = append(failures, err); deleted {
			r.Recorder.Eventf(rs, vmi, corev1.EventTypeNormal, "SuccessfulDelete", "DeleteVMI",
				"Stopped the virtual machine by deleting the virtual machine instance %s", vmi.Name)
		}
	}
	for _, vmi := range p.Create {
		failures = append(failures, r.create(ctx, rs, vmi))
	}
	return replicaset.Failure(failures)
}

func (r *Reconciler) patchOwners(ctx context.Context, from, to *v1.VirtualMachineInstance) error {
	return versioned.Patch(ctx, r.Client, "changing the owner of VMI", from, to)
}

func (r *Reconciler) create(ctx context.Context, rs *v1.VirtualMachineInstanceReplicaSet, vmi *v1.VirtualMachineInstance) error {
	err := r.Client.Create(ctx, vmi)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		// It is from an earlier round or foreign. Once the cache shows it, the next name is used.
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating VMI %s: %w", vmi.Name, err)
	}
	r.Recorder.Eventf(rs, vmi, corev1.EventTypeNormal, "SuccessfulCreate", "CreateVMI",
		"Started the virtual machine by creating the new virtual machine instance %s", vmi.Name)
	return nil
}

func (r *Reconciler) patchStatus(ctx context.Context, rs *v1.VirtualMachineInstanceReplicaSet, status v1.VirtualMachineInstanceReplicaSetStatus) error {
	if equality.Semantic.DeepEqual(rs.Status, status) {
		return nil
	}
	to := rs.DeepCopy()
	to.Status = status
	written, err := versioned.WriteStatus(ctx, r.Client, "patching the status of replica set", rs, to)
	if err != nil || written == nil {
		return err
	}
	r.written.Wrote(written)
	return nil
}

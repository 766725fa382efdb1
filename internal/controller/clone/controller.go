// Package clone is the loop of VirtualMachineClones. Package clone of the rules decides.
//
// It owns the status of clones, and their snapshots and restores until these are deleted. It must not decide, and it
// must not write VMs or claims: a clone's restore does.
package clone

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/waiting"
	"drydock.dev/drydock/internal/rules/snapshot/clone"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
}

// most bounds the consecutive steps for one clone, so that others have their turn.
const most = 8

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineclone").
		For(&clonev1.VirtualMachineClone{}).
		Owns(&snapshotv1.VirtualMachineSnapshot{}).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Owns(&snapshotv1.VirtualMachineRestore{}).
		WithOptions(pace).
		Complete(r)
}

func (r *Reconciler) waiting(ctx context.Context, source client.Object) []reconcile.Request {
	return waiting.For(ctx, r.Client, &clonev1.VirtualMachineCloneList{}, source)
}

// Register adds the loop's index.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	return waiting.Register(ctx, indexer, &clonev1.VirtualMachineClone{}, func(c *clonev1.VirtualMachineClone) []string {
		switch from := c.Spec.Source; {
		case from == nil || !clone.Waits(c):
			return nil
		case from.Kind == "VirtualMachineSnapshot":
			return []string{waiting.Snapshot(from.Name)}
		default:
			return []string{waiting.VM(from.Name)}
		}
	})
}

// Reconcile handles one clone.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	after, err := settle.Turns(ctx, most, func(ctx context.Context) (again bool, after time.Duration, err error) {
		o, err := r.observe(ctx, req.NamespacedName)
		if err != nil || o.Clone == nil {
			return false, 0, err
		}
		plan := clone.Decide(o)
		again, err = r.apply(ctx, o, plan)
		return again, plan.After, err
	})
	return ctrl.Result{RequeueAfter: after}, err
}

// Clone is nil if it does not exist or is settled.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (clone.Observed, error) {
	o := clone.Observed{Now: r.Now()}
	var of clonev1.VirtualMachineClone
	if err := r.Client.Get(ctx, key, &of); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	if clone.Settled(&of) || of.DeletionTimestamp != nil {
		return o, nil
	}
	if err := r.Reader.Get(ctx, key, &of); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	// The object has bypassed admission.
	if of.Spec.Source == nil {
		return o, nil
	}
	if err := r.observeMade(ctx, &of, &o); err != nil {
		return o, err
	}
	if !clone.Ended(&of) {
		if err := r.observeMachines(ctx, &of, &o); err != nil {
			return o, err
		}
	}
	o.Clone = &of
	return o, nil
}

func (r *Reconciler) observeMade(ctx context.Context, of *clonev1.VirtualMachineClone, o *clone.Observed) (err error) {
	if o.Snapshot, err = versioned.Read[snapshotv1.VirtualMachineSnapshot](ctx, r.Reader, "the snapshot", client.ObjectKey{Namespace: of.Namespace, Name: clone.SnapshotName(of)}); err != nil {
		return err
	}
	if o.Restore, err = versioned.Read[snapshotv1.VirtualMachineRestore](ctx, r.Reader, "the restore", client.ObjectKey{Namespace: of.Namespace, Name: clone.RestoreName(of)}); err != nil {
		return err
	}
	if o.Restore == nil || o.Restore.Status == nil || of.Status.Phase != clonev1.Succeeded {
		return nil
	}
	for _, volume := range o.Restore.Status.Restores {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Reader, "the claim", client.ObjectKey{Namespace: of.Namespace, Name: volume.PersistentVolumeClaimName})
		if err != nil {
			return err
		}
		o.Unbound = o.Unbound || claim != nil && claim.Status.Phase == corev1.ClaimPending
	}
	return nil
}

func (r *Reconciler) observeMachines(ctx context.Context, of *clonev1.VirtualMachineClone, o *clone.Observed) (err error) {
	if o.Target, err = versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", client.ObjectKey{Namespace: of.Namespace, Name: clone.TargetName(of)}); err != nil {
		return err
	}
	if o.Snapshot == nil {
		o.Source, err = versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.Source.Name})
		return err
	}
	if o.Restore != nil || o.Snapshot.Status == nil || o.Snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return nil
	}
	o.Content, err = versioned.Read[snapshotv1.VirtualMachineSnapshotContent](ctx, r.Reader, "the content",
		client.ObjectKey{Namespace: of.Namespace, Name: *o.Snapshot.Status.VirtualMachineSnapshotContentName})
	return err
}

// apply reports whether to look again at once.
func (r *Reconciler) apply(ctx context.Context, o clone.Observed, plan clone.Plan) (again bool, err error) {
	wrote, err := r.writeStatus(ctx, o.Clone, plan.Clone)
	if err != nil || !wrote {
		return err == nil, err
	}
	r.emitEnd(o.Clone, plan.Clone)
	if clone.LacksSource(plan.Clone) && !clone.LacksSource(o.Clone) {
		r.tell(o.Clone, clone.ReasonNoSource, clone.Says(plan.Clone))
	}
	if plan.Step == clone.Rest {
		// The snapshot and the restore are deleted at once.
		return !clone.Ended(o.Clone) && clone.Ended(plan.Clone), nil
	}
	err = r.executeStep(ctx, o, plan)
	if versioned.HeldUp(err) {
		if _, werr := r.writeStatus(ctx, plan.Clone, clone.Held(plan, err.Error())); werr != nil {
			return false, werr
		}
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || clone.Ended(plan.Clone) {
		return err == nil, err
	}
	// A quota or an admission rule would refuse a retry, too.
	to := clone.Refused(o, plan, err.Error())
	_, err = r.writeStatus(ctx, plan.Clone, to)
	r.emitEnd(plan.Clone, to)
	return err == nil, err
}

func (r *Reconciler) executeStep(ctx context.Context, o clone.Observed, plan clone.Plan) error {
	switch plan.Step {
	case clone.MakeSnapshot:
		return r.create(ctx, o.Clone, "SnapshotCreated", "the snapshot", plan.Snapshot)
	case clone.MakeRestore:
		return r.create(ctx, o.Clone, "RestoreCreated", "the restore", plan.Restore)
	case clone.Adopt:
		to := plan.Clone.DeepCopy()
		to.OwnerReferences = append(to.OwnerReferences, clone.Owner(o.Target))
		return versioned.Patch(ctx, r.Client, "making VM "+o.Target.Name+" an owner of the clone", plan.Clone, to)
	case clone.DropRestore:
		return r.drop(ctx, "the restore", o.Restore)
	case clone.DropSnapshot:
		return r.drop(ctx, "the snapshot", o.Snapshot)
	case clone.Rest:
	}
	return nil
}

func (r *Reconciler) create(ctx context.Context, of *clonev1.VirtualMachineClone, event, what string, object client.Object) error {
	if err := r.Client.Create(ctx, object); apierrors.IsAlreadyExists(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("making %s %s/%s of a clone: %w", what, object.GetNamespace(), object.GetName(), err)
	}
	r.tell(of, event, fmt.Sprintf("%s %s was created", what, object.GetName()))
	return nil
}

// tell emits an event under KubeVirt's name for it.
func (r *Reconciler) tell(of *clonev1.VirtualMachineClone, reason, message string) {
	r.Recorder.Eventf(of, nil, corev1.EventTypeNormal, reason, "Clone", "%s", message)
}

func (r *Reconciler) drop(ctx context.Context, what string, object client.Object) error {
	_, err := deletion.Exact(ctx, r.Client, object, what+" of a clone,")
	return err
}

// The written resource version is set in to. False means that another writer was faster.
func (r *Reconciler) writeStatus(ctx context.Context, from, to *clonev1.VirtualMachineClone) (bool, error) {
	return versioned.FollowStatus(ctx, r.Client, "writing the status of the clone", from, to)
}

func (r *Reconciler) emitEnd(from, to *clonev1.VirtualMachineClone) {
	if clone.Ended(from) || !clone.Ended(to) {
		return
	}
	kind, reason := corev1.EventTypeNormal, "VirtualMachineCloneSucceeded"
	if to.Status.Phase == clonev1.Failed {
		kind, reason = corev1.EventTypeWarning, "VirtualMachineCloneFailed"
	}
	r.Recorder.Eventf(from, nil, kind, reason, "Clone", "%s", clone.Says(to))
}

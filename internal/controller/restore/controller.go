// Package restore is the loop of VirtualMachineRestores. Package restore of the rules decides.
//
// It owns the status and the finalizer of restores, their claims until a VM has them, status.restoreInProgress of
// VMs, and the single write by which a VM gets a snapshot's manifest or is created. It must not decide anything that
// depends on more than the API server's response.
//
// A restore in progress is observed in the API server and never in a cache (decision 421).
package restore

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/controller/waiting"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
}

// most bounds the consecutive steps for one restore, so that others have their turn.
const most = 12

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinerestore").
		For(&snapshotv1.VirtualMachineRestore{}).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		WithOptions(pace).
		Complete(r)
}

func (r *Reconciler) waiting(ctx context.Context, of client.Object) []reconcile.Request {
	return waiting.For(ctx, r.Client, &snapshotv1.VirtualMachineRestoreList{}, of)
}

// Register adds the loop's index.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	return waiting.Register(ctx, indexer, &snapshotv1.VirtualMachineRestore{}, func(r *snapshotv1.VirtualMachineRestore) []string {
		if restore.Complete(r) || restore.Failed(r) {
			return nil
		}
		return []string{waiting.VM(r.Spec.Target.Name), waiting.Snapshot(r.Spec.VirtualMachineSnapshotName)}
	})
}

// Reconcile handles one restore.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	after, err := settle.Turns(ctx, most, func(ctx context.Context) (again bool, after time.Duration, err error) {
		o, err := r.observe(ctx, req.NamespacedName)
		if err != nil || o.Restore == nil {
			return false, 0, err
		}
		plan := restore.Decide(o)
		again, err = r.apply(ctx, o, plan)
		return again, plan.After, err
	})
	return ctrl.Result{RequeueAfter: after}, err
}

// Restore is nil if it does not exist or is complete.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (restore.Observed, error) {
	o := restore.Observed{Now: r.Now()}
	var of snapshotv1.VirtualMachineRestore
	if err := r.Client.Get(ctx, key, &of); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	if of.DeletionTimestamp == nil && restore.Complete(&of) {
		return o, nil
	}
	if err := r.Reader.Get(ctx, key, &of); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	target := client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.Target.Name}
	var err error
	if o.VM, err = versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", target); err != nil {
		return o, err
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", target)
	if err != nil {
		return o, err
	}
	o.Guest = vmi != nil && !vmi.IsFinal()
	if err := r.observeSource(ctx, &of, &o); err != nil {
		return o, err
	}
	o.Restore = &of
	return o, r.observeClaims(ctx, &o)
}

func (r *Reconciler) observeSource(ctx context.Context, of *snapshotv1.VirtualMachineRestore, o *restore.Observed) (err error) {
	key := client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.VirtualMachineSnapshotName}
	if o.Snapshot, err = versioned.Read[snapshotv1.VirtualMachineSnapshot](ctx, r.Reader, "the snapshot", key); err != nil || o.Snapshot == nil {
		return err
	}
	if o.Snapshot.Status == nil || o.Snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return nil
	}
	key.Name = *o.Snapshot.Status.VirtualMachineSnapshotContentName
	if o.Content, err = versioned.Read[snapshotv1.VirtualMachineSnapshotContent](ctx, r.Reader, "the content", key); err != nil || o.Content == nil {
		return err
	}
	o.VolumeSnapshots, err = volumesnapshot.Of(ctx, r.Reader, o.Content)
	return err
}

func (r *Reconciler) observeClaims(ctx context.Context, o *restore.Observed) error {
	o.Claims, o.Fillers, o.Waits = map[string]*corev1.PersistentVolumeClaim{}, map[string]types.UID{}, map[string]bool{}
	for _, name := range restore.ClaimNames(o) {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Reader, "the claim", client.ObjectKey{Namespace: o.Restore.Namespace, Name: name})
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		o.Claims[name] = claim
		if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" && owner.Name == name {
			o.Fillers[name] = owner.UID
		}
		class := claim.Spec.StorageClassName
		if class == nil || o.Waits[*class] {
			continue
		}
		found, err := versioned.Read[storagev1.StorageClass](ctx, r.Reader, "the storage class", client.ObjectKey{Name: *class})
		if err != nil {
			return err
		}
		if found != nil {
			o.Waits[*class] = found.VolumeBindingMode != nil && *found.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		}
	}
	return nil
}

// The written resource version is set in to. False means that another writer was faster.
func (r *Reconciler) writeStatus(ctx context.Context, from, to *snapshotv1.VirtualMachineRestore) (bool, error) {
	return versioned.FollowStatus(ctx, r.Client, "writing the status of the restore", from, to)
}

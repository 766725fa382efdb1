// Package snapshot is the loop of VirtualMachineSnapshots. Package snapshot of the rules decides.
//
// It owns the status and the finalizer of snapshots, their VirtualMachineSnapshotContents, the VolumeSnapshots of
// those, their owner references in ControllerRevisions, and status.snapshotInProgress of VMs. It must not decide
// anything that depends on more than the API server's response.
//
// A snapshot in progress is observed in the API server and never in a cache, repeatedly: there are few at a time,
// each for seconds (decision 421).
package snapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/controller/waiting"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	// Guests quiesces guests.
	Guests Guests
	Now    func() time.Time
}

// most bounds the consecutive steps for one snapshot, so that others have their turn.
const most = 12

// Content is the kind of contents in the cache, only by metadata, since each has a whole VM in it.
func Content() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent"))
	return object
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinesnapshot").
		For(&snapshotv1.VirtualMachineSnapshot{}).
		Watches(&v1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		WatchesMetadata(Content(), handler.EnqueueRequestsFromMapFunc(ofContent)).
		WithOptions(pace).
		Complete(r)
}

func (r *Reconciler) waiting(ctx context.Context, vm client.Object) []reconcile.Request {
	return waiting.For(ctx, r.Client, &snapshotv1.VirtualMachineSnapshotList{}, vm)
}

// Register adds the loop's index.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	return waiting.Register(ctx, indexer, &snapshotv1.VirtualMachineSnapshot{}, func(s *snapshotv1.VirtualMachineSnapshot) []string {
		if !snapshot.Waits(s) {
			return nil
		}
		return []string{waiting.VM(s.Spec.Source.Name)}
	})
}

// A retained content has no snapshot.
func ofContent(_ context.Context, content client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(content)
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: content.GetNamespace(), Name: owner.Name}}}
}

// Reconcile handles one snapshot.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	after, err := settle.Turns(ctx, most, func(ctx context.Context) (again bool, after time.Duration, err error) {
		o, err := r.observe(ctx, req.NamespacedName)
		if err != nil || o.Snapshot == nil {
			return false, 0, err
		}
		plan := snapshot.Decide(o)
		again, err = r.apply(ctx, o, plan)
		return again, plan.After, err
	})
	return ctrl.Result{RequeueAfter: after}, err
}

// Snapshot is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (snapshot.Observed, error) {
	o := snapshot.Observed{Now: r.Now()}
	var s snapshotv1.VirtualMachineSnapshot
	if err := r.Client.Get(ctx, key, &s); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	if s.DeletionTimestamp == nil && s.Status != nil && s.Status.Phase == snapshotv1.Succeeded {
		return r.observeDone(ctx, o, &s)
	}
	if err := r.Reader.Get(ctx, key, &s); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	var err error
	if o.Content, err = versioned.Read[snapshotv1.VirtualMachineSnapshotContent](ctx, r.Reader, "the content", contentKey(&s)); err != nil {
		return o, err
	}
	if o.VM, o.VMI, err = r.source(ctx, &s); err != nil {
		return o, err
	}
	o.Snapshot = &s
	if snapshot.Ended(&s) || s.DeletionTimestamp != nil {
		return o, nil
	}
	if o.VM == nil && o.Content == nil {
		o.Supported = true // looked up when there is something to snapshot
		return o, nil
	}
	return r.observeStorage(ctx, o)
}

// observeDone observes only whether the content exists.
func (r *Reconciler) observeDone(ctx context.Context, o snapshot.Observed, s *snapshotv1.VirtualMachineSnapshot) (snapshot.Observed, error) {
	content := Content()
	err := r.Client.Get(ctx, contentKey(s), content)
	if apierrors.IsNotFound(err) {
		// The cache may be late.
		err = r.Reader.Get(ctx, contentKey(s), content)
	}
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("looking for the content of the snapshot %s/%s: %w", s.Namespace, s.Name, err)
	}
	o.Snapshot = s
	if err == nil {
		o.Content = &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: content.ObjectMeta}
	}
	return o, nil
}

func contentKey(s *snapshotv1.VirtualMachineSnapshot) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: snapshot.ContentName(s)}
}

// source reads the VM, and its VMI unless that has ended.
func (r *Reconciler) source(ctx context.Context, s *snapshotv1.VirtualMachineSnapshot) (*v1.VirtualMachine, *v1.VirtualMachineInstance, error) {
	key := client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Source.Name}
	vm, err := versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", key)
	if err != nil || vm == nil {
		return nil, nil, err
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", key)
	if vmi != nil && vmi.IsFinal() {
		vmi = nil
	}
	return vm, vmi, err
}

// observeStorage observes the disks or, with a content, its VolumeSnapshots.
func (r *Reconciler) observeStorage(ctx context.Context, o snapshot.Observed) (snapshot.Observed, error) {
	if o.Content != nil {
		return r.observeTaken(ctx, o)
	}
	classes, served, err := volumesnapshot.Classes(ctx, r.Reader)
	if err != nil || !served {
		return o, err
	}
	o.Supported = true
	if o.VM == nil || o.VM.Spec.Template == nil {
		return o, nil
	}
	for _, volume := range snapshot.Kept(o.VM) {
		disk, err := r.disk(ctx, o.VM.Namespace, volume, classes)
		if err != nil {
			return o, err
		}
		o.Disks = snapshot.Append(o.Disks, o.VM, disk)
	}
	if len(o.Disks) < 2 {
		return o, nil
	}
	if o.GroupClasses, err = volumesnapshot.GroupClasses(ctx, r.Client, r.Reader); err != nil || len(o.GroupClasses) == 0 {
		return o, err
	}
	o.Labeled, err = volumesnapshot.Labeled(ctx, r.Reader, o.VM.Namespace, snapshot.GroupLabel(o.VM))
	return o, err
}

// observeTaken observes the VolumeSnapshots of a content, its VolumeGroupSnapshot, and the guest.
func (r *Reconciler) observeTaken(ctx context.Context, o snapshot.Observed) (snapshot.Observed, error) {
	var err error
	if o.VolumeSnapshots, err = volumesnapshot.Of(ctx, r.Reader, o.Content); err != nil {
		return o, err
	}
	if o.Supported = len(o.VolumeSnapshots) > 0; !o.Supported {
		// The API server takes up to a tenth of a second for a list, and the guest may be held.
		if _, o.Supported, err = volumesnapshot.Classes(ctx, r.Reader); err != nil || !o.Supported {
			return o, err
		}
	}
	if o, err = r.observeGroup(ctx, o); err != nil {
		return o, err
	}
	if o.Revisions, err = r.observeRevisions(ctx, o); err != nil {
		return o, err
	}
	// The hold must be read last: a guest that is still held when all cuts are known to be taken was held for all.
	o.Hold = r.holdOn(ctx, o)
	return o, nil
}

func (r *Reconciler) disk(ctx context.Context, namespace string, volume [2]string, classes []snapshot.Class) (snapshot.Disk, error) {
	key := client.ObjectKey{Namespace: namespace, Name: volume[1]}
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Reader, "the claim", key)
	if err != nil || claim == nil {
		return snapshot.NewDisk(volume, nil, nil, "", nil), err
	}
	var filler *cdiv1.DataVolume
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" {
		if filler, err = versioned.Read[cdiv1.DataVolume](ctx, r.Reader, "the DataVolume", key); err != nil {
			return snapshot.Disk{}, err
		}
		if filler == nil {
			// The DataVolume is being deleted and takes its claim along, filled or not.
			filler = &cdiv1.DataVolume{}
		}
	}
	driver, err := r.driver(ctx, claim.Spec.VolumeName)
	if err != nil {
		return snapshot.Disk{}, err
	}
	return snapshot.NewDisk(volume, claim, filler, driver, classes), nil
}

// driver returns the CSI driver of a volume, "" for none.
func (r *Reconciler) driver(ctx context.Context, volume string) (string, error) {
	if volume == "" {
		return "", nil
	}
	v, err := versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume", client.ObjectKey{Name: volume})
	if err != nil || v == nil || v.Spec.CSI == nil {
		return "", err
	}
	return v.Spec.CSI.Driver, nil
}

// The written resource version is set in to. False means that another writer was faster.
func (r *Reconciler) writeStatus(ctx context.Context, from, to *snapshotv1.VirtualMachineSnapshot) (bool, error) {
	return versioned.FollowStatus(ctx, r.Client, "writing the status of the snapshot", from, to)
}

// Package vm is the loop that starts and stops VirtualMachines according to their run strategies. Package
// vmcontroller decides.
//
// It owns the existence and the owner of a VM's VMI and of the DataVolumes of its dataVolumeTemplates, the
// DataVolumes to which a drain moves its disks, with their names in its template, its ControllerRevisions and its
// status. It must not touch pods or claims, nor the status of the VMI or of a DataVolume.
package vm

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/snapshot"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Settings func(context.Context) (clusterconfig.Settings, error)
	Now      func() time.Time

	written   mutationcache.Memory[*v1.VirtualMachine]
	created   mutationcache.Memory[*v1.VirtualMachineInstance]
	deleted   mutationcache.Deletions
	started   templates
	classes   snapshotClasses
	revisions revisions
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, pace controller.Options) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1.VirtualMachine{}, dataVolumeIndex, dataVolumeNames)
	if err != nil {
		return fmt.Errorf("indexing VMs by DataVolume: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1.VirtualMachine{}, referredIndex, unresolved); err != nil {
		return fmt.Errorf("indexing VMs by what they refer to: %w", err)
	}
	building := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachine").
		For(&v1.VirtualMachine{}).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.sameName)).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.usersOfDataVolume)).
		// A new claim may be one that snapshots include. A deleted DataVolume's must be gone before another is created.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.usersOfDataVolume), builder.WithPredicates(beginningsAndEnds())).
		Watches(&v1.KubeVirt{}, handler.EnqueueRequestsFromMapFunc(r.running), builder.WithPredicates(newStrategy())).
		WithOptions(pace)
	for _, kind := range []client.Object{
		&instancetypev1.VirtualMachineInstancetype{}, &instancetypev1.VirtualMachineClusterInstancetype{},
		&instancetypev1.VirtualMachinePreference{}, &instancetypev1.VirtualMachineClusterPreference{},
	} {
		building = building.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.waiters), builder.WithPredicates(creations()))
	}
	return building.Complete(r)
}

// sameName returns the VM of a VMI's name, if it exists: the VMI's owner, or the VM that may adopt it.
func (r *Reconciler) sameName(ctx context.Context, vmi client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(vmi)
	if metav1.GetControllerOf(vmi) == nil {
		var vm v1.VirtualMachine
		// Only its existence matters: no copy.
		if err := r.Client.Get(ctx, key, &vm, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// Reconcile handles one VM.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	observed, err := r.observe(ctx, req.NamespacedName)
	if err != nil || observed.VM == nil {
		return ctrl.Result{}, err
	}
	var plan vmcontroller.Plan
	plan, err = settle.Plan(ctx, func() (vmcontroller.Plan, vmcontroller.Question) {
		if observed.VM == nil {
			return vmcontroller.Plan{}, ""
		}
		plan = vmcontroller.Decide(observed)
		return plan, plan.Needs
	}, func(ctx context.Context, question vmcontroller.Question) error {
		return r.ask(ctx, question, &observed, plan.VM)
	})
	if err != nil || observed.VM == nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, observed, plan); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.After}, nil
}

// ask answers a question from the API server. wanted is the planned VM. Afterwards the VM is nil if it is gone or is
// not the newest version.
func (r *Reconciler) ask(ctx context.Context, question vmcontroller.Question, o *vmcontroller.Observed, wanted *v1.VirtualMachine) error {
	switch question {
	case vmcontroller.NeedStored, vmcontroller.NeedTemplate:
		return r.writeOutsideStatus(ctx, o, wanted)
	case vmcontroller.NeedVM:
		var err error
		if o.VMConfirmed, err = versioned.Current(ctx, r.Reader, "VM", o.VM); err == nil && !o.VMConfirmed {
			o.VM = nil // The other version wakes the loop.
		}
		return err
	case vmcontroller.NeedVMI:
		return r.askForVMI(ctx, o)
	case vmcontroller.NeedDestinations:
		return r.askForDestinations(ctx, o)
	}
	return fmt.Errorf("nobody can ask for %s", question)
}

// VM is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (vmcontroller.Observed, error) {
	o := vmcontroller.Observed{Now: r.Now()}
	var vm v1.VirtualMachine
	if err := r.Client.Get(ctx, key, &vm); err != nil {
		r.written.Forget(key)
		r.created.Forget(key)
		r.deleted.Forget(key)
		r.started.forget(key)
		r.revisions.forget(key)
		return o, client.IgnoreNotFound(err)
	}
	o.VM = r.written.Newer(&vm)

	settings, err := r.Settings(ctx)
	if err != nil {
		return o, err
	}
	o.Strategy, o.Limits = settings.RolloutStrategy, settings.LiveUpdate
	o.Binding, o.ReferencePolicy = settings.DefaultNetworkInterface, settings.ReferencePolicy
	toType, toPreference := instancetype.References(o.VM)
	if o.Type, err = r.referred(ctx, o.VM, toType); err != nil {
		return o, err
	}
	if o.Preference, err = r.referred(ctx, o.VM, toPreference); err != nil {
		return o, err
	}
	if err := r.observeDataVolumes(ctx, &o); err != nil {
		return o, err
	}
	vmi, err := r.vmi(ctx, key)
	if err != nil || vmi == nil {
		return o, err
	}
	o.VMI = vmi
	if o.Started, err = r.startedFrom(ctx, o.Expanded(), vmi); err != nil {
		return o, err
	}
	return o, r.observeDrainDisks(ctx, &o)
}

// vmi returns the VMI of that name, nil for none. If this process created it, it may be too new for the cache.
func (r *Reconciler) vmi(ctx context.Context, key types.NamespacedName) (*v1.VirtualMachineInstance, error) {
	from := client.Reader(r.Client)
	if r.created.Has(key) {
		from = versioned.CacheFirst(r.Client, r.Reader)
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, from, "VMI", key)
	if err != nil {
		return nil, err
	}
	if vmi == nil {
		r.created.Forget(key)
		r.deleted.Forget(key)
		return nil, nil
	}
	return r.created.Newer(vmi), nil
}

// startedFrom returns the template from which the VMI was created, of an expanded VM. A revision is read once, if the
// VM's template differs.
func (r *Reconciler) startedFrom(ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (*v1.VirtualMachineInstanceSpec, error) {
	if vm == nil || vm.Spec.Template == nil || !metav1.IsControlledBy(vmi, vm) {
		return nil, nil
	}
	key, name := client.ObjectKeyFromObject(vm), vmi.Status.VirtualMachineRevisionName
	if name == "" {
		return nil, nil
	}
	if name == vmcontroller.RevisionName(vm) {
		r.started.forget(key)
		return &vm.Spec.Template.Spec, nil
	}
	if spec := r.started.get(key, name); spec != nil {
		return spec, nil
	}
	revision, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", types.NamespacedName{Namespace: vmi.Namespace, Name: name})
	if err != nil || revision == nil {
		return nil, err
	}
	spec, err := vmcontroller.StartedFrom(revision)
	if err != nil {
		return nil, err
	}
	r.started.put(key, template{record: name, spec: spec})
	return spec, nil
}

// writeOutsideStatus writes the planned changes outside the status. Afterwards the VM is confirmed as the newest, or
// nil if another writer was faster or if this write completed its deletion.
func (r *Reconciler) writeOutsideStatus(ctx context.Context, o *vmcontroller.Observed, to *v1.VirtualMachine) error {
	wanted := to.DeepCopy()
	o.VM.Status.DeepCopyInto(&wanted.Status)
	written, err := versioned.Write(ctx, r.Client, "completing VM", o.VM, wanted)
	if err != nil {
		return err
	}
	if written == nil || written.DeletionTimestamp != nil && len(written.Finalizers) == 0 {
		o.VM = nil
		return nil
	}
	r.written.Wrote(written)
	o.VM, o.VMConfirmed = written, true
	return nil
}

func (r *Reconciler) askForVMI(ctx context.Context, o *vmcontroller.Observed) error {
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", client.ObjectKeyFromObject(o.VM))
	o.VMI, o.VMIAsked, o.Started, o.DrainDisks = vmi, true, nil, nil
	if err != nil || vmi == nil {
		return err
	}
	if o.Started, err = r.startedFrom(ctx, o.Expanded(), vmi); err != nil {
		return err
	}
	return r.observeDrainDisks(ctx, o)
}

func (r *Reconciler) askForDestinations(ctx context.Context, o *vmcontroller.Observed) error {
	o.Destinations = map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range vmcontroller.DestinationNames(o) {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Reader, "the claim", client.ObjectKey{Namespace: o.VM.Namespace, Name: name})
		if err != nil {
			return err
		}
		if claim != nil {
			o.Destinations[name] = claim
		}
	}
	return nil
}

func (r *Reconciler) apply(ctx context.Context, o vmcontroller.Observed, plan vmcontroller.Plan) error {
	if err := r.takeOwnership(ctx, o, plan); err != nil {
		return err
	}
	if err := r.keepDataVolumes(ctx, o.VM, plan); err != nil {
		return r.reportFailedCreate(ctx, o, plan, fmt.Errorf("error encountered while creating DataVolumes: %w", err))
	}
	if plan.Create != nil {
		created, err := r.create(ctx, o, plan)
		if err != nil {
			return r.reportFailedCreate(ctx, o, plan, fmt.Errorf("failed to create the virtual machine instance: %w", err))
		}
		if !created {
			return nil
		}
	}
	if plan.Sync != nil {
		if err := versioned.Patch(ctx, r.Client, "bringing the template's changes into VMI", o.VMI, plan.Sync); err != nil {
			return err
		}
	}
	if err := r.dropDestinations(ctx, o.VM, plan); err != nil {
		return err
	}
	if err := r.makeDestinations(ctx, o.VM, plan); err != nil {
		return r.reportFailedCreate(ctx, o, plan, err)
	}
	wrote, err := r.patchStatus(ctx, o.VM, plan.VM)
	if err != nil || !wrote {
		return err
	}
	r.dropRevisions(ctx, o.VM, plan.VM)
	if plan.Delete {
		return r.deleteVMI(ctx, o)
	}
	return nil
}

func (r *Reconciler) takeOwnership(ctx context.Context, o vmcontroller.Observed, plan vmcontroller.Plan) error {
	if plan.ReleaseRevisions {
		if err := r.releaseRevisions(ctx, o.VM); err != nil {
			return err
		}
	}
	// The revisions are created or held before anything is created from them.
	for _, keep := range plan.Keep {
		var err error
		if keep.Make != nil {
			err = r.makeRevision(ctx, o.VM, keep.Make)
		} else {
			err = r.holdRevision(ctx, o.VM, keep)
		}
		if err != nil {
			return r.reportFailedCreate(ctx, o, plan, err)
		}
	}
	if !plan.Adopt {
		return nil
	}
	to := o.VMI.DeepCopy()
	to.OwnerReferences = append(to.OwnerReferences, *metav1.NewControllerRef(o.VM, v1.VirtualMachineGroupVersionKind))
	return versioned.Patch(ctx, r.Client, "adopting VMI", o.VMI, to)
}

// create creates the VMI after the revision with its template. It reports false if a VMI of the name exists, whose
// event wakes the loop.
func (r *Reconciler) create(ctx context.Context, o vmcontroller.Observed, plan vmcontroller.Plan) (bool, error) {
	revision := plan.Revision
	if err := r.Client.Create(ctx, revision); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("recording the template: %w", err)
	}
	err := r.Client.Create(ctx, plan.Create)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.created.Wrote(plan.Create)
	r.Recorder.Eventf(o.VM, plan.Create, corev1.EventTypeNormal, "SuccessfulCreate", "CreateVMI",
		"Started the virtual machine by creating the new virtual machine instance %s", plan.Create.Name)
	r.pruneRevisions(ctx, o.VM, revision.Name)
	return true, nil
}

// A failure is repaired at the next start.
func (r *Reconciler) pruneRevisions(ctx context.Context, vm *v1.VirtualMachine, keep string) {
	log := ctrl.LoggerFrom(ctx)
	earlier, err := pagedlist.Collect(ctx, r.Reader, &appsv1.ControllerRevisionList{}, func(old *appsv1.ControllerRevision) (metav1.ObjectMeta, bool) {
		return metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, UID: old.UID}, old.Name != keep
	}, client.InNamespace(vm.Namespace), client.MatchingLabels{vmcontroller.RevisionLabel: string(vm.UID)})
	if err != nil {
		log.Error(err, "listing the records of earlier templates")
		return
	}
	for _, old := range earlier {
		if _, err := deletion.Exact(ctx, r.Client, &appsv1.ControllerRevision{ObjectMeta: old}, "ControllerRevision"); err != nil {
			log.Error(err, "deleting the record of an earlier template", "revision", old.Name)
		}
	}
}

// The error is for a retry, unless the namespace is terminating.
func (r *Reconciler) reportFailedCreate(ctx context.Context, o vmcontroller.Observed, plan vmcontroller.Plan, cause error) error {
	if apierrors.HasStatusCause(cause, corev1.NamespaceTerminatingCause) {
		// The VM is deleted with its namespace, which wakes the loop.
		return nil
	}
	undone := vmcontroller.CreateFailed(o, plan, cause.Error())
	if equality.Semantic.DeepEqual(o.VM.Status, undone.Status) {
		return cause
	}
	r.Recorder.Eventf(o.VM, nil, corev1.EventTypeWarning, "FailedCreate", "CreateVMI", "%v", cause)
	if _, err := r.patchStatus(ctx, o.VM, undone); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "reporting what could not be created")
	}
	return cause
}

// patchStatus reports false after a conflict.
func (r *Reconciler) patchStatus(ctx context.Context, from, to *v1.VirtualMachine) (bool, error) {
	wanted := from.DeepCopy()
	to.Status.DeepCopyInto(&wanted.Status)
	same := equality.Semantic.DeepEqual(from.Status, to.Status)
	if statuses, err := r.volumeSnapshots(ctx, to); err == nil {
		same = same && snapshot.SameEnabled(from.Status.VolumeSnapshotStatuses, statuses)
		wanted.Status.VolumeSnapshotStatuses = statuses
	} else {
		// The rest of the status must not wait for that.
		ctrl.LoggerFrom(ctx).Error(err, "finding out which volumes can be snapshotted")
	}
	if same {
		return true, nil
	}
	written, err := versioned.WriteStatus(ctx, r.Client, "patching the status of VM", from, wanted)
	if err != nil || written == nil {
		return false, err
	}
	r.written.Wrote(written)
	return true, nil
}

func (r *Reconciler) deleteVMI(ctx context.Context, o vmcontroller.Observed) error {
	key := client.ObjectKeyFromObject(o.VM)
	if r.deleted.Asked(key, o.VMI.UID) {
		return nil
	}
	var gone bool
	var err error
	if o.VM.DeletionTimestamp != nil {
		// If the VM is deleted with orphaned dependents, the garbage collector removes the owner reference, and the VM no
		// longer says so: the VMI is deleted only in the version that the VM owned.
		var deleted bool
		deleted, err = versioned.Outcome("deleting VMI", o.VMI, deletion.AsSeen(ctx, r.Client, o.VMI))
		gone = !deleted && err == nil
	} else {
		gone, err = deletion.Exact(ctx, r.Client, o.VMI, "VMI")
	}
	if err != nil || gone {
		return err
	}
	r.deleted.Ask(key, o.VMI.UID)
	r.Recorder.Eventf(o.VM, o.VMI, corev1.EventTypeNormal, "SuccessfulDelete", "DeleteVMI",
		"Stopped the virtual machine by deleting the virtual machine instance %s", o.VMI.Name)
	return nil
}

package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// apply reports whether to look again at once.
func (r *Reconciler) apply(ctx context.Context, o snapshot.Observed, plan snapshot.Plan) (again bool, err error) {
	if plan.Step == snapshot.Hold {
		return true, r.finalizer(ctx, o.Snapshot, func(f []string) []string { return append(f, snapshot.Finalizer) })
	}
	wrote, err := r.writeStatus(ctx, o.Snapshot, plan.Snapshot)
	if err != nil || !wrote {
		return err == nil, err
	}
	r.emitEnd(o.Snapshot, plan.Snapshot)
	if plan.Step == snapshot.Rest {
		// A failed snapshot is cleaned up at once.
		return !snapshot.Ended(o.Snapshot) && snapshot.Ended(plan.Snapshot), nil
	}
	if plan.Step == snapshot.Quiesce {
		hold, again, err := r.quiesce(ctx, o, plan)
		if hold == nil {
			return again, err
		}
		// Another observation would prolong the hold. Changes are noticed when the cuts are taken.
		o.Snapshot, o.Hold = plan.Snapshot, hold
		if plan = snapshot.Decide(o); plan.Step != snapshot.Cut {
			return true, nil
		}
	}
	err = r.executeStep(ctx, o, plan)
	// A quota, an admission rule or a size would refuse a retry, too.
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		to := snapshot.Refused(o, plan, err.Error())
		_, werr := r.writeStatus(ctx, plan.Snapshot, to)
		r.emitEnd(plan.Snapshot, to)
		return werr == nil, werr
	}
	if versioned.HeldUp(err) {
		if _, werr := r.writeStatus(ctx, plan.Snapshot, snapshot.Held(plan, err.Error())); werr != nil {
			return false, werr
		}
	}
	return true, err
}

func (r *Reconciler) executeStep(ctx context.Context, o snapshot.Observed, plan snapshot.Plan) error {
	switch plan.Step {
	case snapshot.Release:
		return r.finalizer(ctx, plan.Snapshot, func(f []string) []string {
			return slices.DeleteFunc(f, func(name string) bool { return name == snapshot.Finalizer })
		})
	case snapshot.Lock:
		return r.lock(ctx, o.VM, &o.Snapshot.Name)
	case snapshot.Unlock:
		// A guest that is no longer held was released with the report of its cuts.
		if o.Hold == nil || o.Hold.Lasts() {
			r.letGo(ctx, o)
		}
		return r.lock(ctx, o.VM, nil)
	case snapshot.Report:
		err := r.writeContent(ctx, o, plan)
		if err == nil && o.Hold != nil {
			r.letGo(ctx, o)
		}
		return err
	case snapshot.MakeContent, snapshot.Discard, snapshot.Name:
		return r.labelAndWrite(ctx, o, plan)
	case snapshot.HoldRevisions:
		return r.holdRevisions(ctx, o.Content, plan)
	case snapshot.Cut:
		return r.cut(ctx, plan)
	case snapshot.Hold, snapshot.Quiesce, snapshot.Rest:
	}
	return nil
}

func (r *Reconciler) labelAndWrite(ctx context.Context, o snapshot.Observed, plan snapshot.Plan) error {
	if err := r.label(ctx, plan); err != nil {
		return err
	}
	err := r.writeContent(ctx, o, plan)
	if err == nil && plan.Step == snapshot.MakeContent {
		r.tell(o.Snapshot, "SuccessfulVirtualMachineSnapshotContentCreate", "Successfully created VirtualMachineSnapshotContent "+plan.Content.Name)
	}
	return err
}

// label changes which claims a VolumeGroupSnapshot would select, if the plan says so.
func (r *Reconciler) label(ctx context.Context, plan snapshot.Plan) error {
	if plan.Labels == nil {
		return nil
	}
	return volumesnapshot.Label(ctx, r.Client, plan.Snapshot.Namespace, plan.Labels)
}

func (r *Reconciler) cut(ctx context.Context, plan snapshot.Plan) error {
	if plan.Group != nil {
		if err := r.label(ctx, plan); err != nil {
			return err
		}
		return volumesnapshot.CreateGroup(ctx, r.Client, plan.Snapshot.Namespace, plan.Group)
	}
	var names []string
	for _, wanted := range plan.Cuts {
		if err := volumesnapshot.Create(ctx, r.Client, plan.Snapshot.Namespace, wanted); err != nil {
			return err
		}
		names = append(names, wanted.Name)
	}
	r.tell(plan.Snapshot, "SuccessfulVolumeSnapshotCreate", "Successfully created the VolumeSnapshots "+strings.Join(names, ", "))
	return nil
}

// tell emits an event under KubeVirt's name for it.
func (r *Reconciler) tell(of *snapshotv1.VirtualMachineSnapshot, reason, message string) {
	r.Recorder.Eventf(of, nil, corev1.EventTypeNormal, reason, "Snapshot", "%s", message)
}

// A conflict is no error: the loop observes again.
func (r *Reconciler) writeContent(ctx context.Context, o snapshot.Observed, plan snapshot.Plan) (err error) {
	switch plan.Step {
	case snapshot.MakeContent:
		err = r.Client.Create(ctx, plan.Content)
	case snapshot.Report:
		err = r.Client.Status().Patch(ctx, plan.Content, client.MergeFromWithOptions(o.Content, client.MergeFromWithOptimisticLock{}))
	case snapshot.Name:
		err = r.Client.Patch(ctx, plan.Content, client.MergeFromWithOptions(o.Content, client.MergeFromWithOptimisticLock{}))
	case snapshot.Discard:
		_, err = deletion.Exact(ctx, r.Client, o.Content, "the content")
	}
	if err == nil || apierrors.IsAlreadyExists(err) || versioned.Overtaken(err) {
		return nil
	}
	return fmt.Errorf("to %s %s/%s: %w", plan.Step, o.Snapshot.Namespace, snapshot.ContentName(o.Snapshot), err)
}

func (r *Reconciler) finalizer(ctx context.Context, from *snapshotv1.VirtualMachineSnapshot, change func([]string) []string) error {
	to := from.DeepCopy()
	to.Finalizers = change(to.Finalizers)
	return versioned.Patch(ctx, r.Client, "changing the finalizers of the snapshot", from, to)
}

// lock sets status.snapshotInProgress of the VM, nil for none. After a conflict the other write enqueues the
// snapshot.
func (r *Reconciler) lock(ctx context.Context, vm *v1.VirtualMachine, name *string) error {
	to := vm.DeepCopy()
	to.Status.SnapshotInProgress = name
	return versioned.PatchStatus(ctx, r.Client, "changing status.snapshotInProgress of VM", vm, to)
}

func (r *Reconciler) emitEnd(from, to *snapshotv1.VirtualMachineSnapshot) {
	if snapshot.Ended(from) || !snapshot.Ended(to) {
		return
	}
	if to.Status.Phase == snapshotv1.Failed {
		r.Recorder.Eventf(from, nil, corev1.EventTypeWarning, "VirtualMachineSnapshotFailed", "Snapshot", "%s", *to.Status.Error.Message)
		return
	}
	r.Recorder.Eventf(from, nil, corev1.EventTypeNormal, "VirtualMachineSnapshotComplete", "Snapshot", "the snapshot of VM %s is complete", from.Spec.Source.Name)
}

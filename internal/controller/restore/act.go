package restore

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// apply reports whether to look again at once.
func (r *Reconciler) apply(ctx context.Context, o restore.Observed, plan restore.Plan) (again bool, err error) {
	if plan.Step == restore.Hold {
		return true, r.finalizer(ctx, o.Restore, func(f []string) []string { return append(f, restore.Finalizer) })
	}
	wrote, err := r.writeStatus(ctx, o.Restore, plan.Restore)
	if err != nil || !wrote {
		return err == nil, err
	}
	r.emitEvents(o.Restore, plan.Restore)
	if plan.Step == restore.Rest {
		// A failed restore is cleaned up at once.
		return !restore.Failed(o.Restore) && restore.Failed(plan.Restore), nil
	}
	err = r.executeStep(ctx, o, plan)
	// A quota or an admission rule would refuse a retry, too.
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		to := restore.Refused(o, plan, err.Error())
		_, werr := r.writeStatus(ctx, plan.Restore, to)
		r.emitEvents(plan.Restore, to)
		if !restore.Failed(to) {
			r.refuse(o.Restore, err)
			if werr == nil {
				werr = err
			}
		}
		return werr == nil, werr
	}
	if versioned.HeldUp(err) {
		to := restore.Held(plan, err.Error())
		if restore.Trouble(to) != restore.Trouble(plan.Restore) {
			r.refuse(o.Restore, err)
		}
		if _, werr := r.writeStatus(ctx, plan.Restore, to); werr != nil {
			return false, werr
		}
	}
	return true, err
}

func (r *Reconciler) refuse(of *snapshotv1.VirtualMachineRestore, why error) {
	r.warn(of, fmt.Sprintf("the restore has met an error: %v", why))
}

func (r *Reconciler) warn(of *snapshotv1.VirtualMachineRestore, why string) {
	r.Recorder.Eventf(of, nil, corev1.EventTypeWarning, "VirtualMachineRestoreError", "Restore", "%s", why)
}

func (r *Reconciler) executeStep(ctx context.Context, o restore.Observed, plan restore.Plan) error {
	switch plan.Step {
	case restore.Release:
		return r.finalizer(ctx, plan.Restore, func(f []string) []string {
			return slices.DeleteFunc(f, func(name string) bool { return name == restore.Finalizer })
		})
	case restore.Adopt:
		to := plan.Restore.DeepCopy()
		to.OwnerReferences = append(to.OwnerReferences, restore.Owner(o.VM))
		return versioned.Patch(ctx, r.Client, "making VM "+o.VM.Name+" the owner of the restore", plan.Restore, to)
	case restore.Lock:
		return r.lock(ctx, o.VM, &o.Restore.Name)
	case restore.Unlock:
		return r.lock(ctx, o.VM, nil)
	case restore.Stop, restore.Switch, restore.Admit:
		return versioned.Patch(ctx, r.Client, "changing VM", o.VM, plan.VM)
	case restore.MakeVM:
		if err := r.Client.Create(ctx, plan.VM); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making VM %s/%s: %w", plan.VM.Namespace, plan.VM.Name, err)
		}
	case restore.MakeClaims:
		return r.makeClaims(ctx, plan.Claims)
	case restore.DropClaims:
		return r.dropClaims(ctx, o, plan.Claims)
	case restore.Own:
		for _, claim := range plan.Claims {
			if err := versioned.Patch(ctx, r.Client, "making VM "+o.VM.Name+" the owner of the claim", o.Claims[claim.Name], claim); err != nil {
				return err
			}
		}
	case restore.Hold, restore.Rest:
	}
	return nil
}

func (r *Reconciler) makeClaims(ctx context.Context, claims []*corev1.PersistentVolumeClaim) error {
	for _, claim := range claims {
		if err := r.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making the claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

// A claim that changes may have become another VM's. A DataVolume would create its claim again, so it is deleted
// first.
func (r *Reconciler) dropClaims(ctx context.Context, o restore.Observed, claims []*corev1.PersistentVolumeClaim) error {
	for _, claim := range claims {
		if uid := o.Fillers[claim.Name]; uid != "" {
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: uid}}
			if _, err := deletion.Exact(ctx, r.Client, dv, "the DataVolume, whose claim is restored,"); err != nil {
				return err
			}
		}
		if _, err := versioned.Outcome("deleting the claim", claim, deletion.AsSeen(ctx, r.Client, claim)); err != nil {
			return err
		}
	}
	return nil
}

// lock sets status.restoreInProgress of the VM, nil for none.
func (r *Reconciler) lock(ctx context.Context, vm *v1.VirtualMachine, name *string) error {
	to := vm.DeepCopy()
	to.Status.RestoreInProgress = name
	return versioned.PatchStatus(ctx, r.Client, "changing status.restoreInProgress of VM", vm, to)
}

func (r *Reconciler) finalizer(ctx context.Context, from *snapshotv1.VirtualMachineRestore, change func([]string) []string) error {
	to := from.DeepCopy()
	to.Finalizers = change(to.Finalizers)
	return versioned.Patch(ctx, r.Client, "changing the finalizers of the restore", from, to)
}

// emitEvents emits an event when the restore ends or begins to wait: as in KubeVirt, VirtualMachineRestoreError for
// every obstacle but a running target.
func (r *Reconciler) emitEvents(from, to *snapshotv1.VirtualMachineRestore) {
	switch {
	case restore.WaitsForTarget(to) && !restore.WaitsForTarget(from):
		why, kind := condition.Find(to.Status.Conditions, snapshotv1.ConditionProgressing).Message, corev1.EventTypeWarning
		if policy := from.Spec.TargetReadinessPolicy; policy != nil && *policy == snapshotv1.VirtualMachineRestoreStopTarget {
			kind = corev1.EventTypeNormal // the restore stops it
		}
		r.Recorder.Eventf(from, nil, kind, "RestoreTargetNotReady", "Restore", "%s", why)
	case restore.Waits(to) && !restore.Waits(from):
		r.warn(from, condition.Find(to.Status.Conditions, snapshotv1.ConditionProgressing).Message)
	case restore.Failed(to) && !restore.Failed(from):
		why := condition.Find(to.Status.Conditions, snapshotv1.ConditionFailure).Message
		r.Recorder.Eventf(from, nil, corev1.EventTypeWarning, "VirtualMachineRestoreFailed", "Restore", "%s", why)
		if !restore.FailedForItsTarget(to) {
			r.warn(from, why)
		}
	case restore.Complete(to) && !restore.Complete(from):
		r.Recorder.Eventf(from, nil, corev1.EventTypeNormal, "VirtualMachineRestoreComplete", "Restore", "VM %s is restored", to.Spec.Target.Name)
	}
}

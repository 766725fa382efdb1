package hotplug

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
)

const actionProtect = "ProtectVolumes"

// A write is not repeated while the cache may be late, even if a user reverts it again and again.
func (r *Reconciler) observeBudget(ctx context.Context, s *observation) error {
	name := hotplugpod.Prefix(s.vmi)
	if err := r.readBudget(ctx, r.Client, s); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(s.vmi)
	switch {
	case s.Budget.State == hotplug.BudgetRight:
		r.memory.settled(key, name)
	case r.memory.madeLately(key, name, r.Now()):
		s.Budget.Lately = true
		s.lookAgain(cacheLag)
	default:
		s.Budget.Why = r.memory.failures(key)[name]
	}
	return nil
}

func (r *Reconciler) readBudget(ctx context.Context, reader client.Reader, s *observation) error {
	key := types.NamespacedName{Namespace: s.vmi.Namespace, Name: hotplugpod.Prefix(s.vmi)}
	budget, err := versioned.Read[policyv1.PodDisruptionBudget](ctx, reader, "the PodDisruptionBudget", key)
	if err != nil {
		return err
	}
	s.budget, s.Budget.State = budget, hotplugpod.JudgeProtection(s.vmi, budget)
	return nil
}

// protect reports whether the budget keeps drains from the attachment pods. Waiting volumes' status has obstacles.
func (r *Reconciler) protect(ctx context.Context, s *observation) (bool, error) {
	step := hotplug.PlanBudget(s.Observed)
	if step == hotplug.BudgetStay {
		return s.Budget.State == hotplug.BudgetRight, nil
	}
	err := r.applyBudget(ctx, s, step)
	if apierrors.IsAlreadyExists(err) {
		// The cache is late, or never shows a budget without the labels.
		if err = r.readBudget(ctx, r.Reader, s); err == nil {
			err = r.applyBudget(ctx, s, hotplug.PlanBudget(s.Observed))
		}
	}
	key, name := client.ObjectKeyFromObject(s.vmi), hotplugpod.Prefix(s.vmi)
	switch {
	case err == nil:
		r.memory.made(key, name, r.Now())
		return true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil // the namespace takes no new objects
	case apierrors.IsConflict(err):
		s.lookAgain(time.Second) // the cache has the newer version then
		return false, nil
	}
	err = fmt.Errorf("the PodDisruptionBudget %s, which keeps drains from hotplugged volumes, %w", name, err)
	if r.memory.failed(key, name, err.Error()) {
		r.Recorder.Eventf(s.vmi, nil, corev1.EventTypeWarning, reasonFailed, actionProtect, "%v", err)
	}
	return false, fmt.Errorf("protecting the attachment pods of VMI %s: %w", key, err)
}

var errForeignBudget = errors.New("exists and is not Drydock's: what is plugged in waits until it is deleted")

func (r *Reconciler) applyBudget(ctx context.Context, s *observation, step hotplug.BudgetStep) error {
	switch step {
	case hotplug.BudgetMake:
		if err := r.Client.Create(ctx, hotplugpod.Protection(s.vmi)); err != nil {
			return fmt.Errorf("can't be made: %w", err)
		}
	case hotplug.BudgetRestore:
		ctrl.LoggerFrom(ctx).Info("restoring a disruption budget that was changed", "budget", s.budget.Name)
		to := hotplugpod.Restored(s.vmi, s.budget)
		err := r.Client.Patch(ctx, to, client.MergeFromWithOptions(s.budget, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return fmt.Errorf("was changed and can't be restored: %w", err)
		}
	case hotplug.BudgetRefuse:
		return errForeignBudget
	case hotplug.BudgetStay:
	}
	return nil
}

func guestOfBudget(_ context.Context, budget client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(budget)
	if owner == nil || owner.Kind != v1.VirtualMachineInstanceGroupVersionKind.Kind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: budget.GetNamespace(), Name: owner.Name}}}
}

// A budget's status changes with every pod.
func ruleChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*policyv1.PodDisruptionBudget)
		after, alike := e.ObjectNew.(*policyv1.PodDisruptionBudget)
		same := ok && alike && equality.Semantic.DeepEqual(before.Spec, after.Spec) &&
			equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
			equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
		return !same
	}}
}

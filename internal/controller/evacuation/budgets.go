package evacuation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// cacheLag is how late a cache may be.
const cacheLag = time.Second

// Budgets is the loop that keeps a disruption budget in each namespace with guests that evictions must not stop. Its
// keys are namespaces, and it has one worker. Client and Now are required.
type Budgets struct {
	Client client.Client
	Now    func() time.Time

	// idleSince has the time at which a namespace's budget was first seen without a VMI that needs it.
	idleSince map[string]time.Time
}

// SetupWithManager registers the loop with one worker.
func (b *Budgets) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	pace.MaxConcurrentReconciles = 1
	namespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	ofGuests := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == evacuation.BudgetName })
	return ctrl.NewControllerManagedBy(mgr).
		Named("evictionbudget").
		Watches(&v1.VirtualMachineInstance{}, namespace, builder.WithPredicates(needChanged())).
		Watches(&policyv1.PodDisruptionBudget{}, namespace, builder.WithPredicates(ofGuests, ruleChanged())).
		WithOptions(pace).
		Complete(b)
}

func needChanged() predicate.Predicate {
	needs := func(o client.Object) bool {
		vmi, ok := o.(*v1.VirtualMachineInstance)
		return ok && evacuation.NeedsBudget(vmi)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return needs(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return needs(e.ObjectOld) != needs(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			vmi, ok := e.Object.(*v1.VirtualMachineInstance)
			return ok && launcherpod.Kept(vmi)
		},
	}
}

// A budget's status changes with every pod.
func ruleChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*policyv1.PodDisruptionBudget)
		after, alike := e.ObjectNew.(*policyv1.PodDisruptionBudget)
		return !ok || !alike || !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	}}
}

// Reconcile handles one namespace.
func (b *Budgets) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace := req.Name
	needed, err := b.needed(ctx, namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	key := types.NamespacedName{Namespace: namespace, Name: evacuation.BudgetName}
	budget, err := versioned.Read[policyv1.PodDisruptionBudget](ctx, b.Client, "the PodDisruptionBudget", key)
	if err != nil {
		return ctrl.Result{}, err
	}
	step, after := evacuation.DecideBudget(needed, budget, b.since(namespace, needed || budget == nil), b.Now())
	err = b.apply(ctx, namespace, budget, step)
	if apierrors.IsConflict(err) {
		// The budget's status does not wake the loop.
		return ctrl.Result{RequeueAfter: cacheLag}, nil
	}
	return ctrl.Result{RequeueAfter: after}, err
}

func (b *Budgets) needed(ctx context.Context, namespace string) (bool, error) {
	var list v1.VirtualMachineInstanceList
	if err := b.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the VMIs of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		if evacuation.NeedsBudget(&list.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

func (b *Budgets) since(namespace string, inUse bool) time.Time {
	if inUse {
		delete(b.idleSince, namespace)
		return time.Time{}
	}
	if b.idleSince == nil {
		b.idleSince = map[string]time.Time{}
	}
	since, known := b.idleSince[namespace]
	if !known {
		since = b.Now()
		b.idleSince[namespace] = since
	}
	return since
}

func (b *Budgets) apply(ctx context.Context, namespace string, budget *policyv1.PodDisruptionBudget, step evacuation.BudgetStep) error {
	var err error
	switch step {
	case evacuation.BudgetMake:
		err = b.Client.Create(ctx, evacuation.Budget(namespace))
	case evacuation.BudgetRestore:
		to := budget.DeepCopy()
		to.Spec = evacuation.Budget(namespace).Spec
		err = b.Client.Patch(ctx, to, client.MergeFromWithOptions(budget, client.MergeFromWithOptimisticLock{}))
	case evacuation.BudgetDelete:
		_, err = deletion.Exact(ctx, b.Client, budget, "the PodDisruptionBudget")
	case evacuation.BudgetStay:
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace takes no new objects
	case apierrors.IsAlreadyExists(err):
		// The cache is late, or lacks a user's own budget.
		ctrl.LoggerFrom(ctx).Info("a PodDisruptionBudget of this name exists already: if it is not Drydock's, delete it", "namespace", namespace, "name", evacuation.BudgetName)
		return nil
	}
	return fmt.Errorf("seeing to the PodDisruptionBudget %s/%s, which keeps evictions from guests: %w", namespace, evacuation.BudgetName, err)
}

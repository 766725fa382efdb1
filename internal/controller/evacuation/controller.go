// Package evacuation is the loop that moves guests away from nodes from which their pods are evicted. Package
// evacuation of the rules decides.
//
// It creates migrations, deletes its own that are no longer needed and have not begun, deletes launcher pods of guests to
// be stopped, and clears the mark of VMIs (status.evacuationNodeName), which virt-api sets. budgets.go has the loop of the
// namespaces' disruption budgets. It must not choose which migration may begin: the loop of migrations does.
package evacuation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/migration"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	migrationrules "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// refusalPause is the pause before a migration that the API server refused is created again.
const refusalPause = 20 * time.Second

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Settings func(context.Context) (clusterconfig.Settings, error)
	Now      func() time.Time
}

// SetupWithManager registers the loop. It uses the index of the loop of migrations, which must be registered, too.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("evacuation").
		Watches(&v1.VirtualMachineInstance{}, vmiEvents()).
		Watches(&v1.VirtualMachineInstanceMigration{}, migrationEvents()).
		Watches(&corev1.Node{}, r.nodeEvents()).
		WithOptions(pace).
		Complete(r)
}

// Reconcile handles one VMI.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName)
	if err != nil || o.VMI == nil {
		return ctrl.Result{}, err
	}
	plan, err := settle.Plan(ctx, func() (evacuation.Plan, evacuation.Question) {
		plan := evacuation.Decide(o)
		return plan, plan.Needs
	}, func(ctx context.Context, question evacuation.Question) error { return r.ask(ctx, question, &o) })
	if err != nil {
		return ctrl.Result{}, err
	}
	after, err := r.apply(ctx, &o, plan)
	return ctrl.Result{RequeueAfter: after}, err
}

func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (evacuation.Observed, error) {
	o := evacuation.Observed{Now: r.Now()}
	settings, err := r.Settings(ctx)
	if err != nil {
		return o, err
	}
	o.Cluster = settings.EvictionStrategy
	if o.VMI, err = versioned.Read[v1.VirtualMachineInstance](ctx, r.Client, "VMI", key); err != nil || o.VMI == nil {
		return o, err
	}
	if o.Migrations, err = migration.Cached(ctx, r.Client, key); err != nil {
		return o, err
	}
	if o.Node, err = readNode(ctx, r.Client, o.VMI); err != nil {
		return o, err
	}
	o.VM, err = readVM(ctx, r.Client, o.VMI)
	return o, err
}

func (r *Reconciler) ask(ctx context.Context, question evacuation.Question, o *evacuation.Observed) error {
	var err error
	key := client.ObjectKeyFromObject(o.VMI)
	switch question {
	case evacuation.NeedNode:
		o.Node, err = readNode(ctx, r.Reader, o.VMI)
		o.NodeAsked = err == nil
	case evacuation.NeedMigrations:
		if o.VMI, err = versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", key); err == nil {
			o.Migrations, err = migration.Stored(ctx, r.Reader, key)
		}
		// The VMI may be marked for another node now.
		o.Asked, o.NodeAsked = err == nil, false
		if err == nil && o.VMI != nil {
			o.Node, err = readNode(ctx, r.Reader, o.VMI)
			o.NodeAsked = err == nil
		}
		if err == nil && o.VMI != nil {
			o.VM, err = readVM(ctx, r.Reader, o.VMI)
			o.Asked = err == nil
		}
	case evacuation.NeedNothing:
	}
	return err
}

func readNode(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance) (*corev1.Node, error) {
	if vmi.Status.EvacuationNodeName == "" {
		return nil, nil
	}
	return versioned.Read[corev1.Node](ctx, from, "node", types.NamespacedName{Name: vmi.Status.EvacuationNodeName})
}

// readVM reads the VM of a VMI whose disks prevent its migration, nil for none.
func readVM(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance) (*v1.VirtualMachine, error) {
	if !migrationrules.HeldByDisks(vmi) {
		return nil, nil
	}
	return versioned.Read[v1.VirtualMachine](ctx, from, "VM", client.ObjectKeyFromObject(vmi))
}

// apply executes the plan in its order and returns when to look again.
func (r *Reconciler) apply(ctx context.Context, o *evacuation.Observed, plan evacuation.Plan) (time.Duration, error) {
	for _, m := range plan.Cancel {
		switch err := deletion.AsSeen(ctx, r.Client, m); { // A later version may have begun.
		case apierrors.IsNotFound(err):
		case err != nil:
			return 0, fmt.Errorf("canceling the migration %s/%s, which is not needed any more: %w", m.Namespace, m.Name, err)
		default:
			r.Recorder.Eventf(o.VMI, m, corev1.EventTypeNormal, "EvacuationCanceled", "CancelMigration", "Canceled the migration %s, which had not begun: its node need not be left any more", m.Name)
		}
	}
	if plan.Clear {
		if err := versioned.Patch(ctx, r.Client, "clearing evacuationNodeName of VMI", o.VMI, evacuation.Clear(o.VMI)); err != nil {
			return 0, err
		}
	}
	if plan.Stop {
		return 0, r.deletePod(ctx, o.VMI)
	}
	if plan.Create != nil {
		return r.createMigration(ctx, o.VMI, plan.Create)
	}
	return plan.After, nil
}

// An allowed eviction does the same.
func (r *Reconciler) deletePod(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	key := types.NamespacedName{Namespace: vmi.Namespace, Name: launcherpod.CurrentName(vmi)}
	pod, err := versioned.Read[corev1.Pod](ctx, r.Client, "the launcher pod", key)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil || launcherpod.BondOf(pod, vmi) != launcherpod.Chosen {
		return err
	}
	if gone, err := deletion.Exact(ctx, r.Client, pod, "the pod of a guest that is to leave its node"); gone || err != nil {
		return err
	}
	r.Recorder.Eventf(vmi, pod, corev1.EventTypeNormal, "EvacuationStopsGuest", "StopGuest",
		"The guest is stopped: it is to leave node %s, and can't be migrated: %v", vmi.Status.NodeName, migrationrules.Movable(vmi))
	return nil
}

// An existing migration of that name is from an earlier attempt.
func (r *Reconciler) createMigration(ctx context.Context, vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration) (time.Duration, error) {
	switch err := r.Client.Create(ctx, m); {
	case err == nil:
		r.Recorder.Eventf(vmi, m, corev1.EventTypeNormal, "SuccessfulCreate", "CreateMigration",
			"Created the migration %s: the guest is to leave node %s", m.Name, vmi.Status.NodeName)
		return 0, nil
	case apierrors.IsAlreadyExists(err):
		return 0, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		r.Recorder.Eventf(vmi, nil, corev1.EventTypeWarning, "FailedCreate", "CreateMigration",
			"The guest is to leave node %s, and a migration can't be created: %v", vmi.Status.NodeName, err)
		return refusalPause, nil
	default:
		return 0, fmt.Errorf("creating the migration %s/%s: %w", m.Namespace, m.Name, err)
	}
}

// Package migration is the loop that executes VirtualMachineInstanceMigrations. Package migration of the rules
// decides.
//
// It owns the target pods, the status and the finalizer of migrations, and the beginning and cancellation of a
// migration in a VMI's status. The loop of VMIs (package vmi) owns where the guest runs afterwards, and the pod that
// it left. It must not decide anything that depends on more than the API server's response.
package migration

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Settings func(context.Context) (clusterconfig.Settings, error)
	Render   func(context.Context, *v1.VirtualMachineInstance, launcherpod.Target) (*corev1.Pod, error)
	// Destinations asks the API server for the claims to which disks are copied.
	Destinations func(context.Context, *v1.VirtualMachineInstance) ([]volumemigration.Destination, error)
	Now          func() time.Time

	written mutationcache.Memory[*v1.VirtualMachineInstanceMigration]
	vmis    mutationcache.Memory[*v1.VirtualMachineInstance]
	deleted mutationcache.Deletions
	// starting is held from the choice of a migration until its status shows that, so that two workers don't exceed
	// the limits.
	starting sync.Mutex
	choices  choices
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, pace controller.Options) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstancemigration").
		Watches(&v1.VirtualMachineInstanceMigration{}, r.migrationEvents()).
		Watches(&v1.VirtualMachineInstance{}, r.vmiEvents()).
		Watches(&corev1.Pod{}, podEvents()).
		Watches(&v1.KubeVirt{}, r.limitEvents()).
		WithOptions(pace).
		Complete(r)
}

// Reconcile handles one migration.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, err := r.migration(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.sweep(ctx, req.NamespacedName, m); err != nil || m == nil {
		return ctrl.Result{}, err
	}
	if !m.TargetIsCreated() {
		r.starting.Lock()
		defer r.starting.Unlock()
		// Another worker may have written it before this one got the lock.
		m = r.written.Newer(m)
	}
	o, err := r.observe(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := r.decide(ctx, &o)
	if err != nil {
		return ctrl.Result{}, err
	}
	after, err := r.apply(ctx, &o, plan)
	return ctrl.Result{RequeueAfter: after}, err
}

func (r *Reconciler) migration(ctx context.Context, key types.NamespacedName) (*v1.VirtualMachineInstanceMigration, error) {
	m, err := versioned.Read[v1.VirtualMachineInstanceMigration](ctx, r.Client, "the migration", key)
	if err != nil {
		return nil, err
	}
	if m == nil {
		r.written.Forget(key)
		r.deleted.Forget(key)
		return nil, nil
	}
	return r.written.Newer(m), nil
}

func (r *Reconciler) decide(ctx context.Context, o *migration.Observed) (migration.Plan, error) {
	return settle.Plan(ctx, func() (migration.Plan, migration.Question) {
		plan := migration.Decide(*o)
		return plan, plan.Needs
	}, func(ctx context.Context, question migration.Question) error { return r.ask(ctx, question, o) })
}

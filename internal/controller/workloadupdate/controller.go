// Package workloadupdate is the loop that moves guests into pods of the newest image. Package workloadupdate of the
// rules decides.
//
// It creates migrations and evictions, and owns the label kubevirt.io/outdatedLauncherImage of VMIs and the number of
// outdated ones in the KubeVirt object's status. Its only key is that object, and it has one worker.
package workloadupdate

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
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
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
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// calm is the pause after a change, so that a hundred VMIs which change together are handled at once.
const calm = time.Second

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	Client   client.Client
	Recorder events.EventRecorder
	// KubeVirt reads the cache, nil for none.
	KubeVirt func(context.Context) (*v1.KubeVirt, error)
	Image    string
	Now      func() time.Time

	// lastBatch is when pods were last evicted, or when this process began.
	lastBatch time.Time
}

// SetupWithManager registers the loop, which must have one worker.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("workloadupdate").
		Watches(&v1.KubeVirt{}, r.soon()).
		Watches(&v1.VirtualMachineInstance{}, r.soon(), builder.WithPredicates(predicate.Funcs{UpdateFunc: mattersOfVMI})).
		Watches(&v1.VirtualMachineInstanceMigration{}, r.soon(), builder.WithPredicates(predicate.Funcs{UpdateFunc: mattersOfMigration})).
		WithOptions(pace).
		Complete(r)
}

// soon enqueues the only key, calm after an event.
func (r *Reconciler) soon() handler.EventHandler {
	key := reconcile.Request{NamespacedName: types.NamespacedName{Name: clusterconfig.Name}}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(key, calm) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(key, calm) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(key, calm) },
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// A running VMI's status changes all the time: updates that no plan depends on are dropped.
func mattersOfVMI(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1.VirtualMachineInstance)
	after, alike := e.ObjectNew.(*v1.VirtualMachineInstance)
	if !ok || !alike {
		return true
	}
	a, b := &before.Status, &after.Status
	return a.Phase != b.Phase || a.LauncherContainerImageVersion != b.LauncherContainerImageVersion || a.EvacuationNodeName != b.EvacuationNodeName ||
		!equality.Semantic.DeepEqual(a.Conditions, b.Conditions) || !equality.Semantic.DeepEqual(before.Labels, after.Labels)
}

func mattersOfMigration(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1.VirtualMachineInstanceMigration)
	after, alike := e.ObjectNew.(*v1.VirtualMachineInstanceMigration)
	return !ok || !alike || before.IsFinal() != after.IsFinal()
}

// Reconcile handles all VMIs.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if r.lastBatch.IsZero() {
		// An earlier leader may just have evicted a batch.
		r.lastBatch = r.Now()
	}
	kv, err := r.KubeVirt(ctx)
	if err != nil || kv == nil {
		return ctrl.Result{}, err
	}
	cluster, err := r.observe(ctx, kv)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := workloadupdate.Decide(cluster)
	again, err := r.apply(ctx, kv, plan)
	return ctrl.Result{RequeueAfter: backoff.Sooner(plan.After, again)}, err
}

// The listed objects must not be changed.
func (r *Reconciler) observe(ctx context.Context, kv *v1.KubeVirt) (workloadupdate.Cluster, error) {
	settings := clusterconfig.FromKubeVirt(kv)
	c := workloadupdate.Cluster{
		Image: r.Image, Strategy: kv.Spec.WorkloadUpdateStrategy, Eviction: settings.EvictionStrategy,
		MostMigrations: *settings.Migrations.ParallelMigrationsPerCluster, LastBatch: r.lastBatch, Now: r.Now(),
	}
	var vmis v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("listing the VMIs: %w", err)
	}
	for i := range vmis.Items {
		c.VMIs = append(c.VMIs, &vmis.Items[i])
	}
	var migrations v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &migrations, client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("listing the migrations: %w", err)
	}
	for i := range migrations.Items {
		c.Migrations = append(c.Migrations, &migrations.Items[i])
	}
	return c, nil
}

// refusalPause is the pause before a migration that the API server refused is created again.
const refusalPause = 20 * time.Second

// A failure for one VMI does not stop the others' updates.
func (r *Reconciler) apply(ctx context.Context, kv *v1.KubeVirt, plan workloadupdate.Plan) (again time.Duration, err error) {
	failed := []error{r.report(ctx, kv, plan.Outdated)}
	for _, vmi := range plan.Label {
		failed = append(failed, r.label(ctx, vmi, true))
	}
	for _, vmi := range plan.Unlabel {
		failed = append(failed, r.label(ctx, vmi, false))
	}
	for _, m := range plan.Migrate {
		refused, err := r.migrate(ctx, m)
		if failed = append(failed, err); refused {
			again = refusalPause
		}
	}
	for _, m := range plan.Cancel {
		// A later version may have begun.
		if err := deletion.AsSeen(ctx, r.Client, m); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("canceling the migration %s/%s, whose reason was taken back: %w", m.Namespace, m.Name, err))
		}
	}
	if len(plan.Evict) > 0 {
		r.lastBatch = r.Now()
	}
	for _, vmi := range plan.Evict {
		failed = append(failed, r.evict(ctx, vmi))
	}
	return again, errors.Join(failed...)
}

// No other loop writes that field.
func (r *Reconciler) report(ctx context.Context, kv *v1.KubeVirt, outdated int) error {
	if n := kv.Status.OutdatedVirtualMachineInstanceWorkloads; n != nil && *n == outdated {
		return nil
	}
	to := kv.DeepCopy()
	to.Status.OutdatedVirtualMachineInstanceWorkloads = &outdated
	if err := r.Client.Status().Patch(ctx, to, client.MergeFrom(kv)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the number of outdated VMIs in the status of KubeVirt %s/%s: %w", kv.Namespace, kv.Name, err)
	}
	return nil
}

// After a conflict, the newer VMI wakes the loop.
func (r *Reconciler) label(ctx context.Context, vmi *v1.VirtualMachineInstance, outdated bool) error {
	return versioned.Patch(ctx, r.Client, "labeling VMI", vmi, workloadupdate.Labeled(vmi, outdated))
}

// An existing migration of that name is from an earlier attempt.
func (r *Reconciler) migrate(ctx context.Context, m *v1.VirtualMachineInstanceMigration) (refused bool, err error) {
	switch err := r.Client.Create(ctx, m); {
	case err == nil, apierrors.IsAlreadyExists(err):
		return false, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		vmi := &v1.VirtualMachineInstance{}
		// Without the VMI, the line has no UID.
		_ = r.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}, vmi)
		log := logs.VMINamed(ctrl.LoggerFrom(ctx), m.Namespace, m.Spec.VMIName, vmi.UID)
		log.Info("a migration for an update is refused", "migration", m.Name, "reason", err.Error())
		return true, nil
	default:
		return false, fmt.Errorf("creating the migration %s/%s: %w", m.Namespace, m.Name, err)
	}
}

// A disruption budget may refuse it; the next batch tries again.
func (r *Reconciler) evict(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: launcherpod.CurrentName(vmi)}}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	switch err := r.Client.SubResource("eviction").Create(ctx, pod, eviction); {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsTooManyRequests(err):
		logs.VMI(ctrl.LoggerFrom(ctx), vmi).Info("an eviction for an update has to wait", "pod", pod.Name, "reason", err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.Recorder.Eventf(vmi, nil, corev1.EventTypeNormal, "SuccessfulEvict", "Evict", "Evicted the launcher pod %s, whose image is not the newest", pod.Name)
	return nil
}

// Package kubevirt is the loop that configures Drydock's own workloads according to the KubeVirt object, and reports
// in its status whether Drydock serves.
//
// It owns that status, the ServiceMonitor and the RoleBinding for Prometheus, the workloads' fields that the KubeVirt
// object configures, and whether the roles for users extend those of Kubernetes (package components). It must not
// deploy anything: the manifests do. The components read the object's configuration themselves (package
// clusterconfig).
package kubevirt

import (
	"context"
	"errors"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

var (
	deployments = []string{components.API, components.Controller}
	daemonSets  = []string{components.Handler}
)

// Reconciler is the loop. All exported fields are required.
type Reconciler struct {
	Client client.Client
	// Reader asks the API server.
	Reader client.Reader
	// KubeVirt reads the cache, nil for none.
	KubeVirt func(context.Context) (*v1.KubeVirt, error)
	// Namespace has the workloads.
	Namespace string
	// Types has the fields of the workloads.
	Types managedfields.TypeConverter

	written  mutationcache.Memory[*v1.KubeVirt]
	settled  map[string]settled
	monitors monitors
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.settled = map[string]settled{}
	monitoring := predicate.NewPredicateFuncs(func(definition client.Object) bool {
		return definition.GetName() == components.ServiceMonitorDefinition || definition.GetName() == components.RulesDefinition
	})
	aggregated := predicate.NewPredicateFuncs(func(role client.Object) bool { return components.AggregatedRole(role.GetName()) })
	// Each run looks up the effective object.
	theOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: clusterconfig.Name}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("kubevirt").
		Watches(&v1.KubeVirt{}, theOne).
		Watches(&appsv1.Deployment{}, theOne).
		Watches(&appsv1.DaemonSet{}, theOne).
		WatchesMetadata(cdi.Definition(), theOne, builder.WithPredicates(predicate.Or(cdi.Decisive(), monitoring))).
		WatchesMetadata(UsersRole(), theOne, builder.WithPredicates(aggregated)).
		Complete(r)
}

// Reconcile updates the workloads and the status.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	cached, err := r.KubeVirt(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	refused, err := r.configure(ctx, cached)
	if err != nil {
		return ctrl.Result{}, err
	}
	// A failure of the monitoring must not keep the status out of date.
	monitored := r.monitor(ctx, cached)
	if r.monitors.refused != "" {
		refused = append(refused, r.monitors.refused)
	}
	if cached != nil {
		err = r.report(ctx, cached, refused)
	}
	return ctrl.Result{RequeueAfter: r.monitors.again}, errors.Join(err, monitored)
}

func (r *Reconciler) report(ctx context.Context, cached *v1.KubeVirt, refused []string) error {
	kv := r.written.Newer(cached)
	seen, err := r.components(ctx)
	if err != nil {
		return err
	}
	installed, err := cdi.Installed(ctx, r.Client, r.Reader)
	if err != nil {
		return err
	}
	want := kv.DeepCopy()
	want.Status = status(kv, facts{components: seen, cdi: installed, refused: strings.Join(refused, separatorOfComponents)}, time.Now())
	if equality.Semantic.DeepEqual(kv.Status, want.Status) {
		return nil
	}
	written, err := versioned.WriteStatus(ctx, r.Client, "patching the status of KubeVirt", kv, want)
	if err != nil || written == nil {
		return err
	}
	r.written.Wrote(written)
	return nil
}

func (r *Reconciler) components(ctx context.Context) ([]component, error) {
	var out []component
	for _, name := range deployments {
		var d appsv1.Deployment
		exists, err := r.read(ctx, name, &d)
		if err != nil {
			return nil, err
		}
		wanted := int32(1)
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		out = append(out, component{
			name: name, exists: exists, wanted: wanted, current: d.Status.ObservedGeneration >= d.Generation,
			updated: d.Status.UpdatedReplicas, available: d.Status.AvailableReplicas,
		})
	}
	for _, name := range daemonSets {
		var d appsv1.DaemonSet
		exists, err := r.read(ctx, name, &d)
		if err != nil {
			return nil, err
		}
		out = append(out, component{
			name: name, exists: exists, wanted: d.Status.DesiredNumberScheduled, current: d.Status.ObservedGeneration >= d.Generation,
			updated: d.Status.UpdatedNumberScheduled, available: d.Status.NumberAvailable,
		})
	}
	return out, nil
}

func (r *Reconciler) read(ctx context.Context, name string, into client.Object) (exists bool, err error) {
	return versioned.Find(ctx, r.Client, "the workload", types.NamespacedName{Namespace: r.Namespace, Name: name}, into)
}

package migration

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// These name the indexes of migrations by their VMI's name, and of target pods by their migration's name.
const (
	byVMI       = "drydock.migrations-of-vmi"
	byMigration = "drydock.target-pods"
)

func index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1.VirtualMachineInstanceMigration{}, byVMI, func(o client.Object) []string {
		if m, ok := o.(*v1.VirtualMachineInstanceMigration); ok {
			return []string{m.Spec.VMIName}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing migrations by VMI: %w", err)
	}
	err = indexer.IndexField(ctx, &corev1.Pod{}, byMigration, func(o client.Object) []string {
		if name := launcherpod.MigrationOf(o); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing target pods by migration: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// migrationEvents enqueues a migration and, when one has ended, those that may begin now.
func (r *Reconciler) migrationEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.choices.forget()
			q.Add(requestFor(e.Object))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.choices.forget()
			q.Add(requestFor(e.ObjectNew))
			before, _ := e.ObjectOld.(*v1.VirtualMachineInstanceMigration)
			after, _ := e.ObjectNew.(*v1.VirtualMachineInstanceMigration)
			if before != nil && after != nil && !before.IsFinal() && after.IsFinal() {
				r.enqueueChosen(ctx, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.choices.forget()
			q.Add(requestFor(e.Object))
			r.enqueueChosen(ctx, q)
		},
	}
}

// vmiEvents enqueues the unfinished migrations of a VMI.
func (r *Reconciler) vmiEvents() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, vmi client.Object) []reconcile.Request {
		list, err := r.migrationsOf(ctx, client.ObjectKeyFromObject(vmi))
		if err != nil {
			logs.VMI(ctrl.LoggerFrom(ctx), vmi).Error(err, "no migration is woken by a VMI's change")
			return nil
		}
		var out []reconcile.Request
		for _, m := range list {
			if !m.IsFinal() || len(m.Finalizers) > 0 {
				r.choices.forget()
				out = append(out, requestFor(m))
			}
		}
		return out
	})
}

func podEvents() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, pod client.Object) []reconcile.Request {
		name := launcherpod.MigrationOf(pod)
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
	})
}

func (r *Reconciler) limitEvents() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) {
		r.choices.forget()
		r.enqueueChosen(ctx, q)
	}}
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

func (r *Reconciler) enqueueChosen(ctx context.Context, q queue) {
	chosen, names, err := r.choice(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "no migration is woken by another's end")
		return
	}
	for uid, c := range chosen {
		if c.May {
			q.Add(reconcile.Request{NamespacedName: names[uid]})
		}
	}
}

// choices caches the last choice, so that a hundred waiting migrations cost one. The zero value is empty. It is safe
// for concurrent use.
type choices struct {
	mu     sync.Mutex
	until  time.Time
	chosen map[types.UID]migration.Choice
	names  map[types.UID]types.NamespacedName
}

// choiceHolds is how long a choice is kept if nothing changes.
const choiceHolds = time.Second

func (c *choices) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chosen = nil
}

func (r *Reconciler) choose(ctx context.Context, m *v1.VirtualMachineInstanceMigration) (migration.Choice, error) {
	chosen, _, err := r.choice(ctx)
	return chosen[m.UID], err
}

// choice chooses from all migrations, as this process knows them.
func (r *Reconciler) choice(ctx context.Context) (map[types.UID]migration.Choice, map[types.UID]types.NamespacedName, error) {
	r.choices.mu.Lock()
	defer r.choices.mu.Unlock()
	now := r.Now()
	if r.choices.chosen != nil && now.Before(r.choices.until) {
		return r.choices.chosen, r.choices.names, nil
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil, nil, err
	}
	var list v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the migrations: %w", err)
	}
	cluster := migration.Cluster{Configuration: settings.Migrations, Now: now, VMI: func(key types.NamespacedName) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		if err := r.Client.Get(ctx, key, vmi, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		return r.vmis.Newer(vmi)
	}}
	names := make(map[types.UID]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		m := r.written.Newer(&list.Items[i])
		cluster.Migrations = append(cluster.Migrations, m)
		names[m.UID] = client.ObjectKeyFromObject(m)
	}
	r.choices.chosen, r.choices.names, r.choices.until = migration.Choose(cluster), names, now.Add(choiceHolds)
	return r.choices.chosen, r.choices.names, nil
}

// migrationsOf returns the migrations of a VMI, as this process knows them. They must not be changed.
func (r *Reconciler) migrationsOf(ctx context.Context, vmi types.NamespacedName) ([]*v1.VirtualMachineInstanceMigration, error) {
	out, err := Cached(ctx, r.Client, vmi)
	for i, m := range out {
		out[i] = r.written.Newer(m)
	}
	return out, err
}

// Cached returns a VMI's migrations in the cache, which must not be changed.
func Cached(ctx context.Context, cache client.Reader, vmi types.NamespacedName) ([]*v1.VirtualMachineInstanceMigration, error) {
	return list(ctx, cache, vmi, client.MatchingFields{byVMI: vmi.Name}, client.UnsafeDisableDeepCopy)
}

// Stored returns a VMI's migrations in the API server.
func Stored(ctx context.Context, server client.Reader, vmi types.NamespacedName) ([]*v1.VirtualMachineInstanceMigration, error) {
	return list(ctx, server, vmi, client.MatchingFields{"spec.vmiName": vmi.Name})
}

func list(ctx context.Context, from client.Reader, vmi types.NamespacedName, options ...client.ListOption) ([]*v1.VirtualMachineInstanceMigration, error) {
	var found v1.VirtualMachineInstanceMigrationList
	if err := from.List(ctx, &found, append(options, client.InNamespace(vmi.Namespace))...); err != nil {
		return nil, fmt.Errorf("listing the migrations of VMI %s: %w", vmi, err)
	}
	out := make([]*v1.VirtualMachineInstanceMigration, len(found.Items))
	for i := range found.Items {
		out[i] = &found.Items[i]
	}
	return out, nil
}

package schedulable

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/rules/cluster/schedulable"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

func away() predicate.Predicate {
	candidate := func(o client.Object) bool {
		node, ok := o.(*corev1.Node)
		return ok && schedulable.Candidate(node)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return candidate(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return candidate(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func guestEnded() predicate.Predicate {
	launcher := func(o client.Object) bool { return o.GetLabels()[v1.AppLabel] == layout.LauncherApp }
	ended := func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && podstatus.Terminal(pod)
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return launcher(e.ObjectNew) && ended(e.ObjectNew) && !ended(e.ObjectOld)
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return launcher(e.Object) },
	}
}

func itsNode(_ context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pod.Spec.NodeName}}}
}

// otherNodes selects virt-handler's DaemonSet when it may select other nodes, or has lost a pod on one that it does
// not select. No rollout changes these fields.
func otherNodes() predicate.Predicate {
	handlers := func(o client.Object) (*appsv1.DaemonSet, bool) {
		ds, ok := o.(*appsv1.DaemonSet)
		return ds, ok && ds.Name == components.Handler
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			_, ok := handlers(e.Object)
			return ok
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := handlers(e.ObjectOld)
			after, alike := handlers(e.ObjectNew)
			return ok && alike && (before.Status.ObservedGeneration != after.Status.ObservedGeneration ||
				before.Status.DesiredNumberScheduled != after.Status.DesiredNumberScheduled ||
				before.Status.NumberMisscheduled != after.Status.NumberMisscheduled)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func (r *Reconciler) candidates(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "no node is looked at because of the DaemonSet")
		return nil
	}
	var out []reconcile.Request
	for i := range nodes.Items {
		if schedulable.Candidate(&nodes.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Name: nodes.Items[i].Name}})
		}
	}
	return out
}

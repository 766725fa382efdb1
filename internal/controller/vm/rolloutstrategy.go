package vm

import (
	"context"

	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func newStrategy() predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return true },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1.KubeVirt)
			after, alike := e.ObjectNew.(*v1.KubeVirt)
			return !ok || !alike || clusterconfig.FromKubeVirt(before).RolloutStrategy != clusterconfig.FromKubeVirt(after).RolloutStrategy
		},
	}
}

// running returns the VMs that have a VMI: the strategy decides which changes of their templates reach it.
func (r *Reconciler) running(ctx context.Context, _ client.Object) []reconcile.Request {
	var vms v1.VirtualMachineList
	// Only their names count: no copies.
	if err := r.Client.List(ctx, &vms, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the VMs for another rollout strategy; each follows it when it is looked at next")
		return nil
	}
	var requests []reconcile.Request
	for i := range vms.Items {
		if vm := &vms.Items[i]; vm.Status.Created {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vm)})
		}
	}
	return requests
}

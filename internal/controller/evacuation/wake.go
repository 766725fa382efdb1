package evacuation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func vmiEvents() handler.EventHandler {
	marked := func(o client.Object) bool {
		vmi, ok := o.(*v1.VirtualMachineInstance)
		return ok && vmi.Status.EvacuationNodeName != ""
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if marked(e.Object) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if marked(e.ObjectNew) || marked(e.ObjectOld) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
			}
		},
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func migrationEvents() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		m, ok := o.(*v1.VirtualMachineInstanceMigration)
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}}}
	})
}

func (r *Reconciler) nodeEvents() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		before, _ := e.ObjectOld.(*corev1.Node)
		after, _ := e.ObjectNew.(*corev1.Node)
		if before == nil || after == nil || !before.Spec.Unschedulable || after.Spec.Unschedulable {
			return
		}
		var list v1.VirtualMachineInstanceList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "no VMI is woken by an uncordoned node", "node", after.Name)
			return
		}
		for i := range list.Items {
			if vmi := &list.Items[i]; vmi.Status.EvacuationNodeName == after.Name {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vmi)})
			}
		}
	}}
}

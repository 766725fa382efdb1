// Package schedulable is the loop that sets the label kubevirt.io/schedulable of nodes that virt-handler has left to
// false. Package schedulable of the rules decides.
//
// It changes that label from true to false, and nothing else of a node: a policy (config/rbac/node-policy.yaml)
// enforces that. Every other change of the label is virt-handler's. It must not touch pods, nor the DaemonSet.
package schedulable

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/rules/cluster/schedulable"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Reconciler is the loop. Its keys are nodes. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client client.Client
	Reader client.Reader
	// Namespace is the namespace of virt-handler's DaemonSet.
	Namespace string
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	// None of these events happens at rest. The kubelet writes its node at least every five minutes, which bounds any
	// delay of the loop.
	return ctrl.NewControllerManagedBy(mgr).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(away())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(itsNode), builder.WithPredicates(guestEnded())).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(r.candidates), builder.WithPredicates(otherNodes())).
		Named("schedulable").
		WithOptions(pace).
		Complete(r)
}

// Reconcile handles one node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	left, err := settle.Plan(ctx, func() (bool, schedulable.Question) { return schedulable.Decide(o) },
		func(ctx context.Context, question schedulable.Question) error {
			return r.ask(ctx, question, req.Name, &o)
		})
	if err != nil || !left {
		return ctrl.Result{}, err
	}
	// Another writer's change has enqueued the node.
	written, err := versioned.Write(ctx, r.Client, "labeling the node that virt-handler has left,", o.Node, schedulable.Mark(o.Node))
	if written != nil {
		ctrl.LoggerFrom(ctx).Info("virt-handler has left the node: its label kubevirt.io/schedulable is false", "node", req.Name)
	}
	return ctrl.Result{}, err
}

// The pods are read only if they can matter.
func (r *Reconciler) observe(ctx context.Context, name string) (schedulable.Observed, error) {
	var o schedulable.Observed
	node := &corev1.Node{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return o, nil
	case err != nil:
		return o, fmt.Errorf("reading node %s: %w", name, err)
	case !schedulable.Candidate(node):
		return o, nil
	}
	o.Node = node
	var err error
	if o.DaemonSet, err = r.daemonSet(ctx, r.Client); err != nil {
		return o, err
	}
	o.Guests, err = r.guests(ctx, name)
	return o, err
}

func (r *Reconciler) guests(ctx context.Context, node string) (bool, error) {
	var launchers corev1.PodList
	if err := r.Client.List(ctx, &launchers, client.MatchingLabels{v1.AppLabel: layout.LauncherApp}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the launcher pods: %w", err)
	}
	for i := range launchers.Items {
		if pod := &launchers.Items[i]; pod.Spec.NodeName == node && !podstatus.Terminal(pod) {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) ask(ctx context.Context, question schedulable.Question, name string, o *schedulable.Observed) error {
	var err error
	switch question {
	case schedulable.NeedNode:
		o.Node, err = versioned.Read[corev1.Node](ctx, r.Reader, "node", client.ObjectKey{Name: name})
		o.NodeAsked = err == nil
	case schedulable.NeedPods:
		if o.DaemonSet, err = r.daemonSet(ctx, r.Reader); err != nil {
			return err
		}
		o.Keeping, err = pagedlist.Collect(ctx, r.Reader, &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) {
			return pod.Name, o.Keeps(pod)
		}, client.MatchingFields{"spec.nodeName": name})
		if err != nil {
			return fmt.Errorf("listing the pods on node %s: %w", name, err)
		}
		o.PodsAsked = true
	case schedulable.NeedNothing:
	}
	return err
}

func (r *Reconciler) daemonSet(ctx context.Context, from client.Reader) (*appsv1.DaemonSet, error) {
	return versioned.Read[appsv1.DaemonSet](ctx, from, "DaemonSet", client.ObjectKey{Namespace: r.Namespace, Name: components.Handler})
}

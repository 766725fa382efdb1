package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const (
	reasonNodeLost = "SelectedNodeLost"
	actionRelease  = "ReleaseSelectedNode"
)

// SelectedNodes is the loop that removes the selected node of a claim of VMIs and DataVolumes if the node is lost
// before the claim is bound. It changes nothing else of a claim.
type SelectedNodes struct{ *Reconciler }

// SetupWithManager registers the loop. VMIs wake it, too, since their claims may have an old node.
func (s *SelectedNodes) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	chosen := predicate.NewPredicateFuncs(func(claim client.Object) bool {
		c, ok := claim.(*corev1.PersistentVolumeClaim)
		return ok && placement.SelectedNode(c) != ""
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("selectednode").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(chosen)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(s.chosenClaims), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(claimsOf(e.ObjectOld), claimsOf(e.ObjectNew)) },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(pace).
		Complete(s)
}

func (s *SelectedNodes) chosenClaims(ctx context.Context, object client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range claimsOf(object) {
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: name}
		var claim corev1.PersistentVolumeClaim
		// Most claims are bound and need no copy.
		err := s.Client.Get(ctx, key, &claim, client.UnsafeDisableDeepCopy)
		if err == nil && placement.SelectedNode(&claim) != "" {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

func claimsOf(object client.Object) []string {
	vmi, ok := object.(*v1.VirtualMachineInstance)
	if !ok {
		return nil
	}
	names := volumeclaim.Names(vmi.Spec.Volumes)
	if state := stateclaim.ClaimName(vmi); state != "" {
		names = append(names, state)
	}
	return names
}

// Reconcile handles one claim.
func (s *SelectedNodes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := s.Client.Get(ctx, req.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c := placement.Choice{Claim: claim, Now: s.Now()}
	var err error
	if c.Used, err = s.used(ctx, claim); err != nil {
		return ctrl.Result{}, err
	}
	plan, err := settle.Plan(ctx, func() (placement.ChoicePlan, placement.ChoiceQuestion) {
		plan := placement.DecideChoice(c)
		return plan, plan.Needs
	}, func(ctx context.Context, question placement.ChoiceQuestion) error {
		if question == placement.NeedNode {
			node, err := versioned.Read[corev1.Node](ctx, s.Reader, "node", types.NamespacedName{Name: placement.SelectedNode(c.Claim)})
			if err == nil {
				c.Node, c.NodeAsked = node, true
			}
			return err
		}
		return s.askForClaim(ctx, &c)
	})
	if err != nil || !plan.Release {
		return ctrl.Result{RequeueAfter: plan.After}, err
	}
	return ctrl.Result{}, s.release(ctx, c.Claim)
}

// used reports whether a VMI that has not ended uses the claim, or a DataVolume fills it.
func (s *SelectedNodes) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" &&
		schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == cdiv1.SchemeGroupVersion.Group {
		return true, nil
	}
	users, err := claimusers.List(ctx, s.Client, claim)
	return slices.ContainsFunc(users, func(vmi v1.VirtualMachineInstance) bool { return !vmi.IsFinal() }), err
}

// askForClaim asks the API server for the pods with the claim, and then for the claim: it must be at least as new as the
// pods that bind it. A claim with another selected node counts as none.
func (s *SelectedNodes) askForClaim(ctx context.Context, c *placement.Choice) error {
	seen := c.Claim
	holders, err := pagedlist.Collect(ctx, s.Reader, &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) {
		return pod.Name, placement.Holds(pod, seen.Name)
	}, client.InNamespace(seen.Namespace))
	if err != nil {
		return fmt.Errorf("asking for the pods that are on the claim %s/%s: %w", seen.Namespace, seen.Name, err)
	}
	if len(holders) > 0 {
		c.Holder = holders[0]
	}
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, s.Reader, "the claim", client.ObjectKeyFromObject(seen))
	if err != nil {
		return err
	}
	c.ClaimAsked, c.Claim = true, nil
	if claim != nil && claim.UID == seen.UID && placement.SelectedNode(claim) == placement.SelectedNode(seen) {
		c.Claim = claim
	}
	return nil
}

// A provisioner that binds the claim at the same time writes it, too: the later write conflicts and is retried.
func (s *SelectedNodes) release(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	node := placement.SelectedNode(claim)
	to := claim.DeepCopy()
	delete(to.Annotations, placement.SelectedNodeAnnotation)
	// Another writer's version wakes this loop.
	written, err := versioned.Write(ctx, s.Client, "taking the node "+node+", which is lost, off the claim", claim, to)
	if err != nil || written == nil {
		return err
	}
	s.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, reasonNodeLost, actionRelease,
		"node %s, on which the storage was to be made, is gone or not ready: the scheduler chooses another", node)
	return nil
}

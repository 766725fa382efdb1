package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/vmstate"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// The event on a claim whose node was taken back.
const (
	reasonNodeLost = "SelectedNodeLost"
	actionRelease  = "ReleaseSelectedNode"
)

// SelectedNodes is the loop of the claims that VMIs and DataVolumes use and for
// whose storage the scheduler has chosen a node: when that is lost before they are
// bound, the choice is taken back. Package placement decides.
//
// It owns nothing of a claim but the end of that choice.
type SelectedNodes struct{ *Reconciler }

// SetupWithManager registers the loop. It is woken by the scheduler's choices, and
// by VMIs, which may be on a claim with an old one.
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

// chosenClaims are the VMI's claims that wait for the storage of a chosen node.
func (s *SelectedNodes) chosenClaims(ctx context.Context, object client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range claimsOf(object) {
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: name}
		var claim corev1.PersistentVolumeClaim
		// It is only looked at, and most are bound: no copy.
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
	if state := vmstate.ClaimName(vmi); state != "" {
		names = append(names, state)
	}
	return names
}

// Reconcile looks at one claim.
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
			return s.askForChosenNode(ctx, &c)
		}
		return s.askForClaim(ctx, &c)
	})
	if err != nil || !plan.Release {
		return ctrl.Result{RequeueAfter: plan.After}, err
	}
	return ctrl.Result{}, s.release(ctx, c.Claim)
}

// used reports whether a VMI that has not ended is on the claim, or a DataVolume
// fills it.
func (s *SelectedNodes) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" &&
		schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == cdiv1.SchemeGroupVersion.Group {
		return true, nil
	}
	users, err := claimusers.List(ctx, s.Client, claim)
	return slices.ContainsFunc(users, func(vmi v1.VirtualMachineInstance) bool { return !vmi.IsFinal() }), err
}

func (s *SelectedNodes) askForChosenNode(ctx context.Context, c *placement.Choice) error {
	node := &corev1.Node{}
	found, err := exists(ctx, s.stored, types.NamespacedName{Name: placement.SelectedNode(c.Claim)}, node)
	if err != nil {
		return err
	}
	if c.NodeAsked = true; found {
		c.Node = node
	}
	return nil
}

// askForClaim asks the API server for the pods on the claim, and then for the claim:
// one that is read after the pods is as young as what binds them. With another
// choice than the one that was looked at, it is as good as none: the newer version
// wakes this loop.
func (s *SelectedNodes) askForClaim(ctx context.Context, c *placement.Choice) error {
	seen := c.Claim
	var pods corev1.PodList
	if err := s.Reader.List(ctx, &pods, client.InNamespace(seen.Namespace)); err != nil {
		return fmt.Errorf("asking for the pods that are on the claim %s/%s: %w", seen.Namespace, seen.Name, err)
	}
	for i := range pods.Items {
		if placement.Holds(&pods.Items[i], seen.Name) {
			c.Holder = pods.Items[i].Name
		}
	}
	claim := &corev1.PersistentVolumeClaim{}
	found, err := exists(ctx, s.stored, client.ObjectKeyFromObject(seen), claim)
	if err != nil {
		return err
	}
	c.ClaimAsked, c.Claim = true, nil
	if found && claim.UID == seen.UID && placement.SelectedNode(claim) == placement.SelectedNode(seen) {
		c.Claim = claim
	}
	return nil
}

// release takes the node off a claim, on which the scheduler chooses again. A
// provisioner that is just binding the claim writes it, too: whoever is second is
// refused, and looks again.
func (s *SelectedNodes) release(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	node := placement.SelectedNode(claim)
	to := claim.DeepCopy()
	delete(to.Annotations, placement.SelectedNodeAnnotation)
	err := s.Client.Patch(ctx, to, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // the newer version wakes this loop
	case err != nil:
		return fmt.Errorf("taking the node %s, which is lost, off the claim %s/%s: %w", node, claim.Namespace, claim.Name, err)
	}
	s.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, reasonNodeLost, actionRelease,
		"node %s, on which the storage was to be made, is gone or not ready: the scheduler chooses another", node)
	return nil
}

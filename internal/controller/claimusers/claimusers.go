// Package claimusers finds the VMIs and the pods that use a claim, and what fills it.
//
// It owns the index of the VMIs, which several loops share, and the questions to the API server by which guests and what
// fills claims exclude each other. Which claims a VMI uses is
// package volumeclaim's rule, and for that of its VM's state package vmstate's; what uses and fills a claim
// package datavolume's. It changes nothing.
package claimusers

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/rules/vmstate"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// index is the name of the index of VMIs by claim.
const index = "drydock.claims"

// Register adds the index to a cache. The loops below need it, and it can be added once.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1.VirtualMachineInstance{}, index, claims); err != nil {
		return fmt.Errorf("indexing VMIs by claim: %w", err)
	}
	return nil
}

func claims(object client.Object) []string {
	vmi, ok := object.(*v1.VirtualMachineInstance)
	if !ok {
		return nil
	}
	return append(volumeclaim.UsedBy(vmi), stateClaims(vmi)...)
}

// stateClaims is the claim of the state of the VMI's VM, if there is one.
func stateClaims(vmi *v1.VirtualMachineInstance) []string {
	if claim := vmstate.ClaimName(vmi); claim != "" {
		return []string{claim}
	}
	return nil
}

// List returns the VMIs that use the claim of an object's name and namespace: a
// DataVolume has those of its claim. They are the cache's own and must not be changed.
func List(ctx context.Context, cache client.Reader, claim client.Object) ([]v1.VirtualMachineInstance, error) {
	var list v1.VirtualMachineInstanceList
	err := cache.List(ctx, &list, client.InNamespace(claim.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index: claim.GetName()})
	if err != nil {
		return nil, fmt.Errorf("listing the VMIs that use the claim %s/%s: %w", claim.GetNamespace(), claim.GetName(), err)
	}
	return list.Items, nil
}

// Requests names those of the claim's VMIs that count to a loop's queue.
func Requests(ctx context.Context, cache client.Reader, claim client.Object, counts func(*v1.VirtualMachineInstance) bool) []reconcile.Request {
	users, err := List(ctx, cache, claim)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "nobody is woken by a claim's change")
		return nil
	}
	var out []reconcile.Request
	for i := range users {
		if counts(&users[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&users[i])})
		}
	}
	return out
}

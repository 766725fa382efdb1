// Package claimusers finds the VMIs and pods that use a claim, and its fillers.
//
// It owns the shared index of VMIs by claim, and the requests to the API server that keep a claim's guests and fillers
// apart. Packages volumeclaim, stateclaim and datavolume decide which claims a VMI uses, and which pods use and fill a
// claim. It must change nothing.
package claimusers

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const index = "drydock.claims"

// Register adds the index to a cache, once, before the loops that use it start.
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
	used := volumeclaim.UsedBy(vmi)
	if claim := stateclaim.ClaimName(vmi); claim != "" {
		used = append(used, claim)
	}
	return used
}

// List returns the VMIs that use the claim with the name and namespace of a claim or DataVolume. They belong to the cache:
// do not change them.
func List(ctx context.Context, cache client.Reader, claim client.Object) ([]v1.VirtualMachineInstance, error) {
	var list v1.VirtualMachineInstanceList
	err := cache.List(ctx, &list, client.InNamespace(claim.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index: claim.GetName()})
	if err != nil {
		return nil, fmt.Errorf("listing the VMIs that use the claim %s/%s: %w", claim.GetNamespace(), claim.GetName(), err)
	}
	return list.Items, nil
}

// Requests returns reconcile requests for the claim's VMIs that counts accepts.
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

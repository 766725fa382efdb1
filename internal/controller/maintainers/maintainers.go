// Package maintainers asks the API server whether a maintenance pod is in the way of a guest, for the loops that start
// guests and lock VMs.
//
// It owns the requests; package vmicontroller decides which pods count. It must change nothing.
package maintainers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// On reports whether a maintenance pod may write to one of the claims. Pod and reader must be the API server's. The pod's
// author may name any machine.
func On(ctx context.Context, reader client.Reader, claims []string, pod *corev1.Pod) (vmicontroller.Rival, bool, error) {
	var of lock.Machine
	if name := lock.For(pod); lock.Gated(pod) && len(validation.IsDNS1123Subdomain(name)) == 0 {
		var err error
		if of, err = Machine(ctx, reader, types.NamespacedName{Namespace: pod.Namespace, Name: name}); err != nil {
			return vmicontroller.Rival{}, false, err
		}
	}
	rival, is := vmicontroller.MaintainerOn(claims, pod, of)
	return rival, is, nil
}

// OnClaim returns a maintenance pod that may write to a claim, and whether there is one. The reader must ask the API
// server.
func OnClaim(ctx context.Context, reader client.Reader, claim types.NamespacedName) (vmicontroller.Rival, bool, error) {
	claims := []string{claim.Name}
	pods, err := pagedlist.Pods(ctx, reader, claims, func(*corev1.Pod) bool { return true }, client.InNamespace(claim.Namespace),
		client.MatchingLabels{v1.AppLabel: layout.MaintenanceApp, layout.ClaimLabel(claim.Name): ""})
	if err != nil {
		return vmicontroller.Rival{}, false, fmt.Errorf("asking for the maintenance pods on the claim %s: %w", claim, err)
	}
	for i := range pods {
		rival, is, err := On(ctx, reader, claims, &pods[i])
		if err != nil || is {
			return rival, is, err
		}
	}
	return vmicontroller.Rival{}, false, nil
}

// Machine returns the machine of a name, nil for none.
func Machine(ctx context.Context, reader client.Reader, name types.NamespacedName) (lock.Machine, error) {
	vm, err := versioned.Read[v1.VirtualMachine](ctx, reader, "VM", name)
	if err != nil {
		return nil, err
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, reader, "VMI", name)
	if err != nil {
		return nil, err
	}
	return lock.Chosen(vm, vmi), nil
}

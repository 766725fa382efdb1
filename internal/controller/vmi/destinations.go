package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
	"drydock.dev/drydock/internal/rules/volumeclaim"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// Destinations asks the API server for the claims that disks of a VMI are to be copied to, and for the
// guests that may write to them.
func (r *Reconciler) Destinations(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]volumemigration.Destination, error) {
	target := volumemigration.Target(vmi)
	claims, err := r.claimsOf(ctx, target, volumeclaim.Destinations(vmi), r.stored)
	if err != nil {
		return nil, err
	}
	byName := map[string]placement.Claim{}
	for _, c := range claims {
		byName[c.Name] = c
	}
	var out []volumemigration.Destination
	for _, m := range volumemigration.Of(vmi) {
		d := volumemigration.Destination{Move: m, Claim: byName[m.To], Size: volumemigration.SizeOf(vmi, m.Volume)}
		d.Plugged = slices.ContainsFunc(hotplug.DestinationsOf(vmi), func(to hotplug.Destination) bool { return to.To.Name == m.Volume })
		if d.User, err = r.userOf(ctx, target, m.To); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// userOf is what may write to a claim, another VMI's guest or a maintenance pod, "" for nothing: the pods of guests that start
// with it and of maintenance are the API server's word, those that it is plugged into a cache's.
func (r *Reconciler) userOf(ctx context.Context, vmi *v1.VirtualMachineInstance, claim string) (string, error) {
	var pods corev1.PodList
	err := r.Reader.List(ctx, &pods, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.AppLabel: layout.LauncherApp, launcherpod.ClaimLabel(claim): ""})
	if err != nil {
		return "", fmt.Errorf("asking for the guests that use the claim %s/%s: %w", vmi.Namespace, claim, err)
	}
	for i := range pods.Items {
		if rival, is := vmilifecycle.RivalOf(vmi, &pods.Items[i]); is {
			return "the VMI " + rival.VMI, nil
		}
	}
	rival, is, err := maintainers.OnClaim(ctx, r.Reader, types.NamespacedName{Namespace: vmi.Namespace, Name: claim})
	if err != nil {
		return "", err
	}
	if is {
		return fmt.Sprintf("the maintenance pod %s of %s", rival.Pod, rival.Maintains), nil
	}
	key := &corev1.PersistentVolumeClaim{}
	key.Namespace, key.Name = vmi.Namespace, claim
	users, err := claimusers.List(ctx, r.Client, key)
	if err != nil {
		return "", err
	}
	for i := range users {
		if user := &users[i]; user.UID != vmi.UID && !user.IsFinal() {
			return "the VMI " + user.Name, nil
		}
	}
	return "", nil
}

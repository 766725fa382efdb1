package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/rivals"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// Destinations asks the API server for the claims to which a VMI's disks are copied, and for their other users.
func (r *Reconciler) Destinations(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]volumemigration.Destination, error) {
	target := volumemigration.Target(vmi)
	claims, err := readClaims(ctx, r.Reader, target, volumeclaim.Destinations(vmi))
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

// userOf names a VMI or a maintenance pod that may write to a claim, "" for none: from the cache if the claim is
// plugged in, else from the API server.
func (r *Reconciler) userOf(ctx context.Context, vmi *v1.VirtualMachineInstance, claim string) (string, error) {
	found, err := rivals.Ask(ctx, r.Reader, r.Client, rivals.Question{
		Namespace: vmi.Namespace, Name: vmi.Name, Claims: []string{claim},
		Judge: func(pod *corev1.Pod) (vmicontroller.Rival, bool) { return vmicontroller.RivalOf(vmi, pod) },
	})
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		rival := found[0]
		if rival.Maintains != "" {
			return fmt.Sprintf("the maintenance pod %s of %s", rival.Pod, rival.Maintains), nil
		}
		return "the VMI " + rival.VMI, nil
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

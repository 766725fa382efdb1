package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// requireHotplugTopology restricts a pod to the nodes of the disks that are plugged once its guest runs. An unbound
// claim does not delay the pod: it is bound to the guest's node later.
func (r *Reconciler) requireHotplugTopology(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	var required []*corev1.NodeSelector
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if !machine.Hotpluggable(v) {
			continue
		}
		selector, err := r.claimTopology(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: volumeclaim.Disk(&v.VolumeSource)})
		if err != nil {
			return err
		}
		if selector != nil {
			required = append(required, selector)
		}
	}
	if err := launcherpod.RequireNodes(pod, required); err != nil {
		return fmt.Errorf("placing the guest of VMI %s near its disks: %w", vmi.Name, err)
	}
	return nil
}

// Nil means any node, or an unbound claim.
func (r *Reconciler) claimTopology(ctx context.Context, key types.NamespacedName) (*corev1.NodeSelector, error) {
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, versioned.CacheFirst(r.Client, r.Reader), "the claim", key)
	if err != nil || claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return nil, err
	}
	volume, err := versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume", types.NamespacedName{Name: claim.Spec.VolumeName})
	if err != nil || volume == nil || volume.Spec.NodeAffinity == nil {
		return nil, err
	}
	return volume.Spec.NodeAffinity.Required, nil
}

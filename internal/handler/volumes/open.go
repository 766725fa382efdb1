package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/podpath"
)

var errNotBound = errors.New("it is not bound")

// Open opens the volume of one of the VMI's claims in the kubelet's folders of a pod. A user's own pod is no danger: its
// folders have only its volumes, and the kubelet mounts only claims of its namespace.
func (v *Volumes) Open(ctx context.Context, pod types.UID, claim string) (*podpath.Volume, error) {
	found, err := v.Cluster.Claim(ctx, v.Namespace, claim)
	if err != nil {
		return nil, fmt.Errorf("reading PVC %s/%s: %w", v.Namespace, claim, err)
	}
	id, err := v.volumeOf(ctx, found)
	if err != nil {
		return nil, fmt.Errorf("finding the volume of PVC %s/%s: %w", v.Namespace, claim, err)
	}
	id.Pod = string(pod)
	volume, err := v.Opener.Open(id)
	if err != nil {
		return nil, err
	}
	volume.Label(v.Label)
	return volume, nil
}

func (v *Volumes) volumeOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (podpath.VolumeID, error) {
	if claim.Spec.VolumeName == "" {
		return podpath.VolumeID{}, errNotBound
	}
	volume, err := v.Cluster.PersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return podpath.VolumeID{}, fmt.Errorf("reading the persistent volume %s: %w", claim.Spec.VolumeName, err)
	}
	// A claim's author may name any volume.
	if of := volume.Spec.ClaimRef; of == nil || of.UID != claim.UID || of.Namespace != claim.Namespace {
		return podpath.VolumeID{}, fmt.Errorf("the persistent volume %s is bound to another claim", volume.Name)
	}
	id := podpath.VolumeID{Name: volume.Name}
	id.Block = volume.Spec.VolumeMode != nil && *volume.Spec.VolumeMode == corev1.PersistentVolumeBlock
	if volume.Spec.HostPath != nil {
		id.HostPath = volume.Spec.HostPath.Path
	}
	return id, nil
}

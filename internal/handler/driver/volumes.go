package driver

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/podpath"
)

// openVolume opens the volume of one of the VMI's claims in the kubelet's folders
// of a pod. Only what the kubelet has set up for that pod can be found there, and
// the kubelet sets up only claims of the pod's namespace: so a pod that is none of
// Drydock's gives its author nothing that is not his own.
func (d *Driver) openVolume(ctx context.Context, pod types.UID, claim string) (*podpath.Volume, error) {
	found, err := d.env.Cluster.Claim(ctx, d.namespace, claim)
	if err != nil {
		return nil, fmt.Errorf("reading PVC %s/%s: %w", d.namespace, claim, err)
	}
	id, err := d.volumeOf(ctx, found)
	if err != nil {
		return nil, fmt.Errorf("finding the volume of PVC %s/%s: %w", d.namespace, claim, err)
	}
	id.Pod = string(pod)
	volume, err := d.env.Volumes.Open(id)
	if err != nil {
		return nil, err
	}
	// There is a guest, or no volume would be opened for it.
	d.mu.Lock()
	if d.prepared != nil {
		volume.Label(d.prepared.selinux.Files())
	}
	d.mu.Unlock()
	return volume, nil
}

// volumeOf is what the API server knows of the volume that a claim is bound to.
func (d *Driver) volumeOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (podpath.VolumeID, error) {
	if claim.Spec.VolumeName == "" {
		return podpath.VolumeID{}, errors.New("it is not bound")
	}
	volume, err := d.env.Cluster.PersistentVolume(ctx, claim.Spec.VolumeName)
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

// Package volumes reads the claims of a VMI, and opens their volumes in the kubelet's folders of a pod.
//
// It changes nothing: package concern/disks plugs and grows the disks.
package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Cluster is the used part of the API server.
type Cluster interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Opener opens volumes in the kubelet's folders (podpath.Volumes).
type Opener interface {
	Open(id podpath.VolumeID) (*podpath.Volume, error)
}

// Volumes are those of a VMI's claims.
type Volumes struct {
	Namespace string
	Cluster   Cluster
	Opener    Opener
	Label     podpath.Labeler // gives new files the launcher's SELinux context; nil without SELinux
}

// Capacity returns the capacity of a claim in bytes, or the requested size.
func (v *Volumes) Capacity(ctx context.Context, claim string) (int64, error) {
	found, err := v.Cluster.Claim(ctx, v.Namespace, claim)
	if err != nil {
		return 0, fmt.Errorf("reading PVC %s/%s: %w", v.Namespace, claim, err)
	}
	return capacityOf(found.Status.Capacity, found.Spec.Resources.Requests), nil
}

func capacityOf(given, requested corev1.ResourceList) int64 {
	size, ok := given[corev1.ResourceStorage]
	if !ok {
		size = requested[corev1.ResourceStorage]
	}
	return size.Value()
}

// Claims are a VMI's claims, by volume.
type Claims map[string]*v1.PersistentVolumeClaimInfo

// ReadClaims reads a VMI's claims.
func ReadClaims(ctx context.Context, cluster Cluster, instance *v1.VirtualMachineInstance) (Claims, error) {
	claims := Claims{}
	for volume, name := range vmihandler.Claims(instance) {
		claim, err := cluster.Claim(ctx, instance.Namespace, name)
		if volume == stateclaim.Volume && apierrors.IsNotFound(err) {
			// The guest may run without it: another VM of the same name has adopted the VMI (decision 441).
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading PVC %s/%s: %w", instance.Namespace, name, err)
		}
		claims[volume] = volumeclaim.Info(name, claim)
	}
	return claims, nil
}

// Capacity returns a claim's capacity in bytes, or the requested size.
func (c Claims) Capacity(_ context.Context, claim string) (int64, error) {
	for _, info := range c {
		if info.ClaimName == claim {
			return capacityOf(info.Capacity, info.Requests), nil
		}
	}
	return 0, fmt.Errorf("PVC %s is none of the VMI's", claim)
}

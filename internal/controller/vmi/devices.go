package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

// attachmentDefinition is Multus' kind. Only the metadata of its objects is read.
var attachmentDefinition = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

func (r *Reconciler) facts(ctx context.Context, vmi *v1.VirtualMachineInstance, claims []placement.Claim) (launcherpod.Facts, error) {
	devices, err := r.devices(ctx, vmi)
	block := map[string]bool{}
	for i := range claims {
		if m := claims[i].Claim.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
			block[claims[i].Name] = true
		}
	}
	return launcherpod.Facts{BlockClaims: block, Devices: devices}, err
}

// devices asks the API server for the resources of the networks that give the VMI a device of its node. Nothing is
// cached: pods are created rarely.
func (r *Reconciler) devices(ctx context.Context, vmi *v1.VirtualMachineInstance) (map[string]corev1.ResourceName, error) {
	out := map[string]corev1.ResourceName{}
	for _, network := range launcherpod.DeviceNetworks(vmi) {
		resource, err := r.resourceOf(ctx, network.Attachment)
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", network.Name, err)
		}
		out[network.Name] = resource
	}
	return out, nil
}

func (r *Reconciler) resourceOf(ctx context.Context, of launcherpod.Attachment) (corev1.ResourceName, error) {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(attachmentDefinition)
	found, err := versioned.Find(ctx, r.Reader, "the NetworkAttachmentDefinition", types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, definition)
	switch {
	case meta.IsNoMatchError(err):
		return "", fmt.Errorf("the cluster has no NetworkAttachmentDefinitions: install Multus for the network %s/%s", of.Namespace, of.Name)
	case err != nil:
		return "", err
	case !found:
		return "", fmt.Errorf("the NetworkAttachmentDefinition %s/%s does not exist", of.Namespace, of.Name)
	}
	resource, err := sriov.Resource(definition.Annotations)
	if err != nil {
		return "", fmt.Errorf("the NetworkAttachmentDefinition %s/%s %w", of.Namespace, of.Name, err)
	}
	return resource, nil
}

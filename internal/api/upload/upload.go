// Package upload lets users fill claims from their own machines: it serves upload.cdi.kubevirt.io/v1beta1
// UploadTokenRequest, which gives a token for one claim, and the upload proxy, which forwards an image with that token to
// the claim's worker.
//
//	virtctl ──UploadTokenRequest──> kube-apiserver ──> Tokens ──token──┐
//	   └────image, bearer token──> Proxy ──mutual TLS──> worker <──claim┘
//
// The cluster's authorizer decides who may create token requests, before a request gets here. The proxy trusts only the
// token, so that it can be reached from outside the cluster. The token has the claim's UID, against later claims of the
// name, and expires after minutes; an upload in progress continues. The only state is the keys that sign tokens, in a
// Secret that all virt-apis share. An upload ends with its virt-api.
//
// The package must not decide how a claim's worker handles the content, and must not write to claims or pods.
package upload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// target reads a claim and refuses one that takes no upload. cluster must not use a cache: a user may request a token
// as soon as the claim exists.
func target(ctx context.Context, cluster client.Reader, name types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := cluster.Get(ctx, name, claim); err != nil {
		return nil, err
	}
	wanted, err := wantsUpload(ctx, cluster, claim)
	switch {
	case err != nil:
		return nil, err
	case !wanted:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("PVC %s is not an upload target: it has neither the annotation %s "+
			"nor a DataVolume with the source upload", name, layout.AnnUploadTarget))
	case claim.Annotations[layout.AnnRunningReason] == datavolume.ReasonClaimInUse:
		return nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), name.Name,
			fmt.Errorf("%s", claim.Annotations[layout.AnnRunningMessage]))
	case claim.DeletionTimestamp != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("PVC %s is being deleted", name))
	case claim.Annotations[layout.AnnPodPhase] == string(corev1.PodSucceeded):
		return nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), name.Name,
			fmt.Errorf("PVC %s is already successfully populated", name))
	}
	return claim, nil
}

// wantsUpload asks the claim's DataVolume, which may have adopted the claim when it was filled, or without one the
// claim's annotations.
func wantsUpload(ctx context.Context, cluster client.Reader, claim *corev1.PersistentVolumeClaim) (bool, error) {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.Kind != "DataVolume" {
		return datavolume.TakesUpload(claim), nil
	}
	volume := &cdiv1.DataVolume{}
	err := cluster.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: owner.Name}, volume)
	if meta.IsNoMatchError(err) {
		// If the kind is not installed, the owner is not Drydock's.
		return false, nil
	}
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return volume.UID == owner.UID && volume.Spec.Source != nil && volume.Spec.Source.Upload != nil, nil
}

// inUse refuses a claim that others than its worker use. virt-controller checked that before it created the worker, perhaps
// long ago. Guests can't use a claim that will be filled, but other pods can.
func inUse(ctx context.Context, cluster client.Reader, claim *corev1.PersistentVolumeClaim) error {
	filling := hotplug.Filling{Claim: claim.Name, ByDataVolume: !datavolume.TakesUpload(claim)}
	namespace := client.InNamespace(claim.Namespace)
	var err error
	if filling.Pods, err = pagedlist.Pods(ctx, cluster, []string{claim.Name}, filling.Uses, namespace); err != nil {
		return fmt.Errorf("listing the pods that use PVC %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if filling.Guests, err = pagedlist.Collect(ctx, cluster, &v1.VirtualMachineInstanceList{}, filling.Guest, namespace); err != nil {
		return fmt.Errorf("listing the guests that use PVC %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	// A maintenance pod that waits for its lock keeps its gate while the claim is to be filled.
	user, err := filling.User(func(*corev1.Pod) (bool, error) { return true, nil })
	switch {
	case err != nil:
		return fmt.Errorf("asking who uses PVC %s/%s: %w", claim.Namespace, claim.Name, err)
	case user != "":
		return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), claim.Name,
			fmt.Errorf("%s is using PVC %s/%s: upload when that has ended", user, claim.Namespace, claim.Name))
	}
	return nil
}

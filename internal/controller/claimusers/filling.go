package claimusers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// User names a pod or a VMI that uses a claim, other than its fillers, "" for none. dataVolume means that a
// DataVolume fills the claim. The reader must ask the API server.
func User(ctx context.Context, reader client.Reader, claim types.NamespacedName, dataVolume bool) (string, error) {
	filling, namespace := hotplug.Filling{Claim: claim.Name, ByDataVolume: dataVolume}, client.InNamespace(claim.Namespace)
	var err error
	if filling.Pods, err = pagedlist.Pods(ctx, reader, []string{claim.Name}, filling.Uses, namespace); err != nil {
		return "", fmt.Errorf("listing the pods that use the claim %s: %w", claim, err)
	}
	if filling.Guests, err = pagedlist.Collect(ctx, reader, &v1.VirtualMachineInstanceList{}, filling.Guest, namespace); err != nil {
		return "", fmt.Errorf("listing the guests that use the claim %s: %w", claim, err)
	}
	return filling.User(func(pod *corev1.Pod) (bool, error) {
		_, is, err := maintainers.On(ctx, reader, []string{claim.Name}, pod)
		return !is, err
	})
}

// Filling says why a claim is not filled yet, "" if it is. The reader must ask the API server.
func Filling(ctx context.Context, reader client.Reader, key types.NamespacedName) (string, error) {
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, reader, "the claim", key)
	if err != nil || claim == nil {
		return "", err
	}
	var filler *cdiv1.DataVolume
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" {
		filler, err = versioned.Read[cdiv1.DataVolume](ctx, reader, "the DataVolume", types.NamespacedName{Namespace: key.Namespace, Name: owner.Name})
		if err != nil {
			return "", err
		}
	}
	if why := datavolume.Unfilled(claim, filler); why != "" {
		return why, nil
	}
	// A worker may still run although nothing shows that the claim is to be filled.
	for _, name := range datavolume.Workers(key.Name) {
		pod, err := versioned.Read[corev1.Pod](ctx, reader, "the pod", types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err != nil {
			return "", err
		}
		if pod != nil && datavolume.Uses(pod, key.Name) {
			return fmt.Sprintf("the pod %s, which fills the claim %s, has not ended", name, key.Name), nil
		}
	}
	return "", nil
}

package vmi

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// annotateNetworks sets the networks that the pod requests, "" for none, unless the pod was deleted or replaced.
func (r *Reconciler) annotateNetworks(ctx context.Context, pod *corev1.Pod, networks string) error {
	var value any
	if networks != "" {
		value = networks
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]any{launcherpod.NetworksAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding the networks of the pod %s: %w", pod.Name, err)
	}
	named := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	_, err = versioned.Outcome("writing the requested networks of the pod", named, r.Client.Patch(ctx, named, client.RawPatch(types.MergePatchType, data)))
	return err
}

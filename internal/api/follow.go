package api

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/clusterconfig"
	"drydock.dev/drydock/internal/nodeapi"
)

// follower keeps the settings those of the KubeVirt object.
type follower struct {
	cache    cache.Cache
	settings *clusterconfig.Current
}

// Start follows until ctx ends.
func (f *follower) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.seen,
		UpdateFunc: func(_, obj any) { f.seen(obj) },
		DeleteFunc: func(any) { f.settings.Set(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	<-ctx.Done()
	return nil
}

func (f *follower) seen(obj any) {
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.settings.Set(kv)
	}
}

// handlers finds virt-handlers among the pods in the cache.
type handlers struct{ pods client.Reader }

// Address implements subresource.Nodes.
func (h *handlers) Address(ctx context.Context, node string) (string, error) {
	pods := &corev1.PodList{}
	err := h.pods.List(ctx, pods, client.InNamespace(clusterconfig.Namespace),
		client.MatchingLabels{v1.AppLabel: "virt-handler"})
	if err != nil {
		return "", fmt.Errorf("finding virt-handler on node %s: %w", node, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == node && pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning &&
			pod.DeletionTimestamp == nil {
			return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(nodeapi.Port)), nil
		}
	}
	return "", fmt.Errorf("no virt-handler runs on node %s", node)
}

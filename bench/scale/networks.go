package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// networks simulates Multus for the launcher pods of a namespace on simulated nodes: each pod has the networks of
// its creation. With inPlace it also simulates a controller that attaches running pods to networks.
type networks struct {
	client  client.Client
	agent   *agent
	inPlace bool

	mu         sync.Mutex
	interfaces map[types.UID]map[string]bool
}

func startNetworks(ctx context.Context, c *cluster.Cluster, a *agent, inPlace bool) error {
	n := &networks{client: c.Client, agent: a, inPlace: inPlace, interfaces: map[types.UID]map[string]bool{}}
	see := func(o any) {
		if err := n.attach(ctx, o.(*corev1.Pod)); err != nil && ctx.Err() == nil {
			a.fail(err)
		}
	}
	handlers := toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }}
	if _, err := a.watch(ctx, c.Config, &corev1.Pod{}, handlers); err != nil {
		return fmt.Errorf("watching pods as Multus: %w", err)
	}
	a.networks.Store(n)
	return nil
}

func (n *networks) attach(ctx context.Context, pod *corev1.Pod) error {
	annotation := launcherpod.MadeWithAnnotation
	if n.inPlace {
		annotation = launcherpod.NetworksAnnotation
	}
	status, interfaces, err := attached(pod.Annotations[annotation])
	if err != nil {
		return fmt.Errorf("reading the networks of pod %s: %w", pod.Name, err)
	}
	if pod.DeletionTimestamp != nil || len(interfaces) == 0 || !n.note(pod.UID, interfaces) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{nichotplug.StatusAnnotation: status}}})
	if err != nil {
		return fmt.Errorf("saying what pod %s is attached to: %w", pod.Name, err)
	}
	if err := n.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("saying what pod %s is attached to: %w", pod.Name, err)
	}
	var vmi v1.VirtualMachineInstance
	if err := n.agent.vmis.Get(ctx, client.ObjectKey{Namespace: n.agent.namespace, Name: launcherpod.VMIOf(pod)}, &vmi); err != nil {
		return client.IgnoreNotFound(err)
	}
	n.agent.see(&vmi, false)
	return nil
}

func attached(asked string) (status string, interfaces map[string]bool, err error) {
	if asked == "" {
		return "", nil, nil
	}
	var list []launcherpod.Attachment
	if err := json.Unmarshal([]byte(asked), &list); err != nil {
		return "", nil, err
	}
	said := []map[string]string{{"name": "cbr0", "interface": "eth0"}}
	interfaces = map[string]bool{}
	for _, a := range list {
		said = append(said, map[string]string{"name": a.Namespace + "/" + a.Name, "interface": a.Interface})
		interfaces[a.Interface] = true
	}
	out, err := json.Marshal(said)
	return string(out), interfaces, err
}

func (n *networks) note(pod types.UID, interfaces map[string]bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.interfaces[pod]
	n.interfaces[pod] = interfaces
	return len(before) != len(interfaces)
}

func (n *networks) has(vmi *v1.VirtualMachineInstance, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pod, node := range vmi.Status.ActivePods {
		if node == vmi.Status.NodeName && n.interfaces[pod][name] {
			return true
		}
	}
	return false
}

// Package bootstrap creates the objects that a new cluster needs, and waits until the cluster works. It must talk
// only to the API server.
package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/render"
)

const manager = "drydock-local"

// Cluster is a client of a cluster's API server.
type Cluster struct {
	layout  layout.Cluster
	typed   kubernetes.Interface
	dynamic dynamic.Interface
}

// New connects with the administrator's kubeconfig.
func New(c layout.Cluster) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", c.Kubeconfig(), err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Cluster{layout: c, typed: typed, dynamic: untyped}, nil
}

var resources = map[string]string{
	"ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "Service": "services",
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Deployment": "deployments",
	"Role": "roles", "RoleBinding": "rolebindings", "CustomResourceDefinition": "customresourcedefinitions",
	"CSIDriver": "csidrivers", "StorageClass": "storageclasses", "VolumeSnapshotClass": "volumesnapshotclasses",
}

// ApplyDNS installs CoreDNS.
func (b *Cluster) ApplyDNS(ctx context.Context) error {
	return b.applyAll(ctx, "CoreDNS", render.DNS(b.layout))
}

func (b *Cluster) applyAll(ctx context.Context, of, manifest string) error {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the manifest of %s: %w", of, err)
		}
		if object.GetKind() == "" {
			continue // a document of comments
		}
		gvk := object.GroupVersionKind()
		resource, ok := resources[gvk.Kind]
		if !ok {
			return fmt.Errorf("applying %s %s: its resource is not known here", gvk.Kind, object.GetName())
		}
		gvr := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: resource}
		var client dynamic.ResourceInterface = b.dynamic.Resource(gvr)
		if ns := object.GetNamespace(); ns != "" {
			client = b.dynamic.Resource(gvr).Namespace(ns)
		}
		_, err = client.Apply(ctx, object.GetName(), &object, metav1.ApplyOptions{FieldManager: manager, Force: true})
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", gvk.Kind, object.GetName(), err)
		}
	}
}

// AwaitNode waits until a node has been ready since a point in time: an older condition is from the node's
// previous life. It also sets the pod CIDR.
func (b *Cluster) AwaitNode(ctx context.Context, name string, since time.Time) error {
	named := fields.OneTermEqualSelector("metadata.name", name)
	lw := cache.NewListWatchFromClient(b.typed.CoreV1().RESTClient(), "nodes", "", named)
	cidr := b.layout.NodePodNet(name).String()
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		if !ok || event.Type == watch.Deleted {
			return false, nil
		}
		if node.Spec.PodCIDR == "" {
			return false, b.setPodCIDR(ctx, name, cidr)
		}
		return nodeReady(node, since), nil
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", name, err)
	}
	return nil
}

func (b *Cluster) setPodCIDR(ctx context.Context, name, cidr string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": cidr, "podCIDRs": []string{cidr}}})
	if err != nil {
		return fmt.Errorf("encoding the pod network of %s: %w", name, err)
	}
	_, err = b.typed.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("noting the pod network of %s: %w", name, err)
	}
	return nil
}

func nodeReady(node *corev1.Node, since time.Time) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			// Times in the API have no fractions of a second.
			return c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
		}
	}
	return false
}

// AwaitDNS waits until a name resolves at CoreDNS's service address. That proves more than a
// status: CoreDNS serves, kube-proxy translates, and the pod network works.
func (b *Cluster) AwaitDNS(ctx context.Context) error {
	server := netip.AddrPortFrom(b.layout.DNSIP(), 53).String()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 500 * time.Millisecond}
		return d.DialContext(ctx, network, server)
	}}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		found, err := resolver.LookupHost(try, "kubernetes.default.svc.cluster.local.")
		cancel()
		if err == nil && slices.Equal(found, []string{b.layout.KubernetesIP().String()}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for CoreDNS at %s: %w (last answer: %v, %w)", server, ctx.Err(), found, err)
		case <-tick.C:
		}
	}
}

// Package deploy applies manifests to a cluster and waits until the objects work. It must not change them, except for
// the accelerator that virt-handler's probe is given.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"drydock.dev/local/internal/manifest"
)

const manager = "drydock-deploy"

// Cluster is a cluster to deploy to.
type Cluster struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// Connect returns a client for a kubeconfig.
func Connect(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	// A single client on the same machine need not spare the API server.
	config.QPS, config.Burst = 200, 400
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	asking, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Cluster{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(asking))}, nil
}

// Deploy applies the objects in order and waits for those that have a state. It waits for CRDs
// before it applies the objects after them.
func (c *Cluster) Deploy(ctx context.Context, objects []*unstructured.Unstructured) error {
	var waiting []*unstructured.Unstructured
	for _, object := range objects {
		if !isDefinition(object) {
			// The next objects may be of the CRDs' kinds.
			if err := c.awaitDefinitions(ctx, &waiting); err != nil {
				return err
			}
		}
		resource, err := c.resource(ctx, object)
		if err != nil {
			return err
		}
		_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: true})
		if err != nil {
			return fmt.Errorf("applying %s: %w", manifest.Name(object), err)
		}
		waiting = append(waiting, object)
	}
	for _, object := range waiting {
		if err := c.Await(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func isDefinition(object *unstructured.Unstructured) bool {
	return object.GetKind() == "CustomResourceDefinition"
}

func (c *Cluster) awaitDefinitions(ctx context.Context, waiting *[]*unstructured.Unstructured) error {
	var others []*unstructured.Unstructured
	for _, object := range *waiting {
		if !isDefinition(object) {
			others = append(others, object)
			continue
		}
		if err := c.Await(ctx, object); err != nil {
			return err
		}
	}
	*waiting = others
	return nil
}

// discovered limits the discovery of a new kind.
const discovered = 30 * time.Second

func (c *Cluster) resource(ctx context.Context, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	var lacks error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, discovered, true, func(context.Context) (bool, error) {
		var err error
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			// The cached discovery lacks a new kind.
			lacks = err
			c.mapper.Reset()
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("asking what the cluster calls %s: %w", manifest.Name(object), errors.Join(lacks, err))
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.client.Resource(mapping.Resource), nil
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return c.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// Created returns an object's time of creation.
func (c *Cluster) Created(ctx context.Context, object *unstructured.Unstructured) (time.Time, error) {
	resource, err := c.resource(ctx, object)
	if err != nil {
		return time.Time{}, err
	}
	found, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading %s: %w", manifest.Name(object), err)
	}
	return found.GetCreationTimestamp().Time, nil
}

// Await waits until an object works. A timeout's error has its last state.
func (c *Cluster) Await(ctx context.Context, object *unstructured.Unstructured) error {
	if !hasState(object) {
		return nil
	}
	resource, err := c.resource(ctx, object)
	if err != nil {
		return err
	}
	named := fields.OneTermEqualSelector("metadata.name", object.GetName()).String()
	list := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = named
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = named
			return resource.Watch(ctx, o)
		},
	}
	last := "it is not there"
	_, err = watchtools.UntilWithSync(ctx, list, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Deleted {
			last = "it is not there"
			return false, nil
		}
		works, why, err := State(seen)
		last = why
		return works, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w; its state was: %s", manifest.Name(object), err, last)
	}
	return nil
}

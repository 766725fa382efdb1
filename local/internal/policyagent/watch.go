package policyagent

import (
	"context"
	"fmt"
	"log"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// hashAnnotation is on the mirror pod of a static pod: the kubelet's own UID for it.
const hashAnnotation = "kubernetes.io/config.hash"

// watches are informers for pods, namespaces and policies. Their caches hold only fields that matter
// to the rules.
type watches struct {
	core, networking           rest.Interface
	pods, namespaces, policies cache.SharedIndexInformer
}

// The informers are stopped. They call changed when the rules may change.
func newWatches(kubeconfig string, changed func()) (*watches, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	core, err := client(config, "/api", corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	networking, err := client(config, "/apis", networkingv1.SchemeGroupVersion, networkingv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	w := &watches{
		core: core, networking: networking,
		pods:       informer(core, "pods", &corev1.Pod{}),
		namespaces: informer(core, "namespaces", &corev1.Namespace{}),
		policies:   informer(networking, "networkpolicies", &networkingv1.NetworkPolicy{}),
	}
	for _, informer := range []cache.SharedIndexInformer{w.pods, w.namespaces, w.policies} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() },
			UpdateFunc: func(before, after any) {
				if differ(before, after) {
					changed()
				}
			},
			DeleteFunc: func(any) { changed() },
		})
		if err == nil {
			err = informer.SetTransform(trim)
		}
		if err != nil {
			return nil, fmt.Errorf("watching pods, namespaces and network policies: %w", err)
		}
	}
	return w, nil
}

// The client links no other API group.
func client(config *rest.Config, path string, group schema.GroupVersion, types func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	err := types(scheme)
	if err == nil {
		config = rest.CopyConfig(config)
		config.APIPath, config.GroupVersion = path, &group
		config.ContentType = runtime.ContentTypeProtobuf
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		var made *rest.RESTClient
		if made, err = rest.RESTClientFor(config); err == nil {
			return made, nil
		}
	}
	return nil, fmt.Errorf("making a client for %s: %w", group, err)
}

func informer(client rest.Interface, resource string, example runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, "", fields.Everything()), example, 0, nil)
}

// run runs the informers until the context ends. It calls ready when their caches are filled.
func (w *watches) run(ctx context.Context, ready func()) {
	if !w.awaitRights(ctx) {
		return
	}
	all := []cache.SharedIndexInformer{w.pods, w.namespaces, w.policies}
	for _, informer := range all {
		go informer.RunWithContext(ctx)
	}
	if cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced, w.namespaces.HasSynced, w.policies.HasSynced) {
		ready()
	}
}

// A watch that fails at first retries only after a delay: `up` creates the RBAC objects.
func (w *watches) awaitRights(ctx context.Context) bool {
	said := ""
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := w.networking.Get().Resource("networkpolicies").Param("limit", "1").Do(ctx).Error()
		if err != nil && err.Error() != said {
			said = err.Error()
			log.Printf("waiting until network policies can be read: %v", err)
		}
		return err == nil, nil
	}) == nil
}

func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metaOf(&o.ObjectMeta)}, nil
	case *networkingv1.NetworkPolicy:
		return &networkingv1.NetworkPolicy{ObjectMeta: metaOf(&o.ObjectMeta), Spec: o.Spec}, nil
	}
	return object, nil // a tombstone
}

func trimPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metaOf(&p.ObjectMeta)}
	if hash := p.Annotations[hashAnnotation]; hash != "" {
		kept.Annotations = map[string]string{hashAnnotation: hash}
	}
	kept.Spec.NodeName, kept.Spec.HostNetwork = p.Spec.NodeName, p.Spec.HostNetwork
	kept.Spec.InitContainers, kept.Spec.Containers = withPorts(p.Spec.InitContainers), withPorts(p.Spec.Containers)
	kept.Status.Phase, kept.Status.PodIPs = p.Status.Phase, p.Status.PodIPs
	return kept
}

func withPorts(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		if len(c.Ports) > 0 {
			kept = append(kept, corev1.Container{Ports: c.Ports})
		}
	}
	return kept
}

func metaOf(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, Labels: o.Labels,
	}
}

func differ(before, after any) bool {
	x, okX := before.(runtime.Object)
	y, okY := after.(runtime.Object)
	if !okX || !okY {
		return true
	}
	x, y = x.DeepCopyObject(), y.DeepCopyObject()
	for _, object := range []runtime.Object{x, y} {
		if meta, ok := object.(metav1.Object); ok {
			meta.SetResourceVersion("")
		}
	}
	return !reflect.DeepEqual(x, y)
}

// Pods are those of all nodes.
func (w *watches) Pods() []*corev1.Pod { return listed[*corev1.Pod](w.pods) }

// Namespaces lists the namespaces.
func (w *watches) Namespaces() []*corev1.Namespace { return listed[*corev1.Namespace](w.namespaces) }

// Policies are those of all namespaces.
func (w *watches) Policies() []*networkingv1.NetworkPolicy {
	return listed[*networkingv1.NetworkPolicy](w.policies)
}

func listed[T any](informer cache.SharedIndexInformer) []T {
	items := informer.GetStore().List()
	all := make([]T, 0, len(items))
	for _, item := range items {
		if object, ok := item.(T); ok {
			all = append(all, object)
		}
	}
	return all
}

// Pod returns the pod with the kubelet's UID from the cache or, if the cache is stale, from the API
// server. It returns nil if the pod is gone.
func (w *watches) Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	if item, found, err := w.pods.GetStore().GetByKey(namespace + "/" + name); err == nil && found {
		if pod, ok := item.(*corev1.Pod); ok && isOf(pod, uid) {
			return pod, nil
		}
	}
	pod := &corev1.Pod{}
	err := w.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	if apierrors.IsNotFound(err) || err == nil && !isOf(pod, uid) {
		return nil, nil
	}
	return pod, err
}

func isOf(pod *corev1.Pod, uid string) bool {
	return string(pod.UID) == uid || pod.Annotations[hashAnnotation] == uid
}

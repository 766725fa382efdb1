// Package podsync makes kubelets sync pods whose claims have grown.
//
// A kubelet expands a mounted volume when it syncs the pod, about once a minute. Shorter sync
// periods cost CPU for every pod, and one event each time for a pod with an image volume. The
// kubelet also syncs a changed pod at once. Therefore, when a claim waits for its node, podsync
// changes an annotation of the pods that use it.
//
//	claim's status: NodeResizePending -> annotation -> kubelet syncs the pod -> expanded
//
// It owns that annotation and must not touch anything else of a pod. All state is in the claim and
// the annotation, so that a restart loses and repeats nothing.
package podsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"drydock.dev/local/internal/csi"
)

// Annotation names the claim that last grew, and its size.
const Annotation = csi.Driver + "/grown-claim"

// Controller annotates the pods of grown claims.
type Controller struct {
	core   kubernetes.Interface
	claims corelisters.PersistentVolumeClaimLister
	queue  workqueue.TypedRateLimitingInterface[string]
}

// New returns a controller; the caller starts the informer.
func New(core kubernetes.Interface, claims coreinformers.PersistentVolumeClaimInformer, retries workqueue.TypedRateLimiter[string]) (*Controller, error) {
	c := &Controller{core: core, claims: claims.Lister(), queue: workqueue.NewTypedRateLimitingQueue(retries)}
	look := func(object any) {
		if claim, is := object.(*corev1.PersistentVolumeClaim); is && waitsForNode(claim) {
			c.queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look, // also after a restart
		UpdateFunc: func(_, after any) { look(after) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching claims that grow: %w", err)
	}
	return c, nil
}

// Run processes the queue until the context ends.
func (c *Controller) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		key, down := c.queue.Get()
		if down {
			return
		}
		if err := c.sync(ctx, key); err != nil {
			runtime.HandleErrorWithContext(ctx, err, "having pods looked at whose claim has grown", "claim", key)
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the claim's name: %w", err)
	}
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading claim %s: %w", key, err)
	}
	if !waitsForNode(claim) {
		return nil
	}
	// Claims rarely grow: a list costs less than a watch of all pods.
	pods, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
	}
	var errs []error
	for i := range pods.Items {
		if toMark(&pods.Items[i], claim) {
			errs = append(errs, c.mark(ctx, &pods.Items[i], mark(claim)))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) mark(ctx context.Context, pod *corev1.Pod, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{Annotation: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	_, err = c.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod is gone or replaced
	}
	if err != nil {
		return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// waitsForNode reports whether the volume has grown and its node must expand it.
func waitsForNode(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending {
		return true
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func toMark(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return uses(pod, claim) && pod.Annotations[Annotation] != mark(claim)
}

func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
			return true
		}
		if v.Ephemeral != nil && metav1.IsControlledBy(claim, pod) && pod.Name+"-"+v.Name == claim.Name {
			return true
		}
	}
	return false
}

// mark is different for each size of each claim.
func mark(claim *corev1.PersistentVolumeClaim) string {
	return claim.Name + "=" + claim.Spec.Resources.Requests.Storage().String()
}

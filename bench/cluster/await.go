package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience limits one step of a benchmark.
const Patience = 2 * time.Minute

// Settle is for updates after an event. Kubernetes sends events in batches.
const Settle = 3 * time.Second

const poll = 50 * time.Millisecond

// Watch calls see with every state until it returns true or the context ends. It returns once the watch is
// established, so a later object is not missed. The channel yields one result.
func (c *Cluster) Watch(ctx context.Context, list client.ObjectList, namespace string, selector client.ListOption, see func(watch.EventType, client.Object) bool) (<-chan error, error) {
	options := []client.ListOption{client.InNamespace(namespace)}
	if selector != nil {
		options = append(options, selector)
	}
	w, err := c.Client.Watch(ctx, list, options...)
	if err != nil {
		return nil, fmt.Errorf("watching %T in %s: %w", list, namespace, err)
	}
	done := make(chan error, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			object, ok := event.Object.(client.Object)
			if !ok {
				done <- fmt.Errorf("watching %T in %s: %w", list, namespace, apierrors.FromObject(event.Object))
				return
			}
			if see(event.Type, object) {
				done <- nil
				return
			}
		}
		done <- fmt.Errorf("watching %T in %s: the watch ended, by the API server or with the context (ended: %t)", list, namespace, ctx.Err() != nil)
	}()
	return done, nil
}

// Named selects one object.
func Named(name string) client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}
}

// CreateAndAwait creates an object and waits until seen accepts its state. It returns the times of the creation and
// of that state.
func (c *Cluster) CreateAndAwait(ctx context.Context, object client.Object, list client.ObjectList, seen func(client.Object) bool) (began, ended time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	done, err := c.Watch(ctx, list, object.GetNamespace(), Named(object.GetName()), func(_ watch.EventType, o client.Object) bool {
		return seen(o)
	})
	if err != nil {
		return began, ended, err
	}
	began = time.Now()
	if err := c.Client.Create(ctx, object); err != nil {
		return began, ended, fmt.Errorf("creating %s: %w", object.GetName(), err)
	}
	err = <-done
	return began, time.Now(), err
}

// TimePod returns the time until a pod runs, and deletes it.
func (c *Cluster) TimePod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	began, ended, err := c.CreateAndAwait(ctx, pod, &corev1.PodList{}, PodRunning)
	if err != nil {
		return 0, err
	}
	return ended.Sub(began), c.DeleteAndAwait(ctx, pod)
}

// PodRunning accepts a running pod.
func PodRunning(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.Status.Phase == corev1.PodRunning
}

// Running accepts a running VMI.
func Running(o client.Object) bool {
	vmi, ok := o.(*v1.VirtualMachineInstance)
	return ok && vmi.Status.Phase == v1.Running
}

// DeleteAndAwait deletes an object and waits until it is gone.
func (c *Cluster) DeleteAndAwait(ctx context.Context, object client.Object) error {
	if err := c.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", object.GetName(), err)
	}
	return Eventually(ctx, object.GetName()+" to be gone", func(ctx context.Context) (bool, error) {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// Eventually polls until the answer is yes; what completes "waiting for".
func Eventually(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		yes, err := ask(ctx)
		if err == nil && yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// AwaitAgents waits until all guests' agents are connected.
func (c *Cluster) AwaitAgents(ctx context.Context, namespace string) error {
	return Eventually(ctx, "the guest's agent", func(ctx context.Context) (bool, error) {
		var vmis v1.VirtualMachineInstanceList
		if err := c.Client.List(ctx, &vmis, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		return len(vmis.Items) > 0 && !slices.ContainsFunc(vmis.Items, func(vmi v1.VirtualMachineInstance) bool {
			return !slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
				return c.Type == v1.VirtualMachineInstanceAgentConnected
			})
		}), nil
	})
}

// Wait waits for a fixed time.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

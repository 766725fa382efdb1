package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
)

// ErrPodDeleted means that an awaited pod was deleted.
var ErrPodDeleted = errors.New("it was deleted")

// VMs reads the VirtualMachines of a namespace.
func (c *Client) VMs(ctx context.Context, namespace string) ([]v1.VirtualMachine, error) {
	list := &v1.VirtualMachineList{}
	err := c.rest.Get().Namespace(namespace).Resource(string(VirtualMachines)).Do(ctx).Into(list)
	return list.Items, err
}

// VMIsOf reads the VirtualMachineInstances of a namespace.
func (c *Client) VMIsOf(ctx context.Context, namespace string) ([]v1.VirtualMachineInstance, error) {
	list := &v1.VirtualMachineInstanceList{}
	err := c.rest.Get().Namespace(namespace).Resource(string(VirtualMachineInstances)).Do(ctx).Into(list)
	return list.Items, err
}

// Maintenance returns the holder of a machine's disks, and the queue.
func (c *Client) Maintenance(ctx context.Context, of Ref) (*maintenance.State, error) {
	return stateOf(c.rest.Get().AbsPath(subresource(of, layout.MaintenanceVerb)...).Do(ctx))
}

// Maintain requests a pod with a machine's disks.
func (c *Client) Maintain(ctx context.Context, of Ref, request *maintenance.Request) (*maintenance.State, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	return stateOf(c.rest.Post().AbsPath(subresource(of, layout.MaintenanceVerb)...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
}

// Release ends the pod that holds the disks of a machine, or the one named by a parameter.
func (c *Client) Release(ctx context.Context, of Ref, parameters ...Parameter) (*maintenance.State, error) {
	request := c.rest.Delete().AbsPath(subresource(of, layout.MaintenanceVerb)...)
	for _, p := range parameters {
		request = request.Param(p.Name, p.Value)
	}
	return stateOf(request.Do(ctx))
}

func stateOf(result rest.Result) (*maintenance.State, error) {
	state := &maintenance.State{}
	return state, decode(result, state)
}

// AwaitPod calls over with each state until it returns true. A deleted pod is an error.
func (c *Client) AwaitPod(ctx context.Context, namespace, name string, over func(*corev1.Pod) bool) error {
	pods := c.core.Pods(namespace)
	list := selected(fields.OneTermEqualSelector("metadata.name", name), pods.List, pods.Watch)
	_, err := toolswatch.UntilWithSync(ctx, list, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		pod, is := event.Object.(*corev1.Pod)
		switch {
		case !is:
			return false, nil
		case event.Type == watch.Deleted:
			return false, fmt.Errorf("pod %s: %w", name, ErrPodDeleted)
		}
		return over(pod), nil
	})
	return causeOf(ctx, err, "pod "+name)
}

// FollowEvents calls seen with each event of a pod until ctx ends.
func (c *Client) FollowEvents(ctx context.Context, namespace, pod string, seen func(*corev1.Event)) error {
	events := c.core.Events(namespace)
	list := selected(fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod}.AsSelector(), events.List, events.Watch)
	_, err := toolswatch.UntilWithSync(ctx, list, &corev1.Event{}, nil, func(event watch.Event) (bool, error) {
		if e, is := event.Object.(*corev1.Event); is && event.Type != watch.Deleted {
			seen(e)
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// AwaitUnlocked waits until the pod no longer locks the machine.
func (c *Client) AwaitUnlocked(ctx context.Context, of Ref, pod string) error {
	var what runtime.Object = &v1.VirtualMachine{}
	list := c.one(of, func() runtime.Object { return &v1.VirtualMachineList{} })
	if of.Resource == VirtualMachineInstances {
		what, list = &v1.VirtualMachineInstance{}, c.oneVMI(of.Namespace, of.Name)
	}
	_, err := toolswatch.UntilWithSync(ctx, list, what, noneThere, func(event watch.Event) (bool, error) {
		machine, is := event.Object.(metav1.Object)
		return is && (event.Type == watch.Deleted || machine.GetLabels()[layout.MaintenanceLabel] != pod), nil
	})
	return causeOf(ctx, err, "the machine "+of.Name)
}

// AwaitStopped waits until the VM has no VMI.
func (c *Client) AwaitStopped(ctx context.Context, namespace, name string) error {
	_, err := toolswatch.UntilWithSync(ctx, c.oneVMI(namespace, name), &v1.VirtualMachineInstance{}, noneThere, func(event watch.Event) (bool, error) {
		return event.Type == watch.Deleted, nil
	})
	return causeOf(ctx, err, "the guest of VM "+name)
}

// A missing object ends the wait at once.
func noneThere(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }

func causeOf(ctx context.Context, err error, what string) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
	}
	return err
}

func selected[T runtime.Object](
	by fields.Selector,
	list func(context.Context, metav1.ListOptions) (T, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = by.String()
			return list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = by.String()
			return follow(ctx, options)
		},
	}
}

package client

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	v1 "kubevirt.io/api/core/v1"
)

// ErrNotStarted means that nothing will start the VMI.
var ErrNotStarted = errors.New("it does not run")

// AwaitRunning waits until the VMI runs, and calls seen with each earlier phase. It fails at once for a VMI that
// has ended, and for a missing one without a VM that would create it.
func (c *Client) AwaitRunning(ctx context.Context, namespace, name string, seen func(v1.VirtualMachineInstancePhase)) error {
	vmi, err := c.VMI(ctx, namespace, name)
	switch {
	case apierrors.IsForbidden(err):
		// A user who may open a console may lack the right to read the object: the server decides.
		return nil
	case apierrors.IsNotFound(err):
		if err := c.expectedByVM(ctx, namespace, name, err); err != nil {
			return err
		}
	case err != nil:
		return err
	case vmi.IsRunning():
		return nil
	}
	reached := func(event watch.Event) (bool, error) {
		vmi, isVMI := event.Object.(*v1.VirtualMachineInstance)
		if !isVMI || event.Type == watch.Deleted {
			return false, nil
		}
		seen(vmi.Status.Phase)
		if vmi.IsFinal() && len(vmi.OwnerReferences) == 0 {
			return false, fmt.Errorf("VMI %s is in phase %s: %w", name, vmi.Status.Phase, ErrNotStarted)
		}
		return vmi.IsRunning(), nil
	}
	_, err = toolswatch.UntilWithSync(ctx, c.oneVMI(namespace, name), &v1.VirtualMachineInstance{}, nil, reached)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for VMI %s to run: %w", name, context.Cause(ctx))
	}
	return err
}

// expectedByVM returns nil if a VM of that name is about to create the missing VMI, notFound if there is no such
// VM, and ErrNotStarted if it is stopped.
func (c *Client) expectedByVM(ctx context.Context, namespace, name string, notFound error) error {
	vm, err := c.VM(ctx, namespace, name)
	if err != nil {
		return notFound
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("reading the run strategy of VM %s: %w", name, err)
	}
	stopped := vm.Status.PrintableStatus == v1.VirtualMachineStatusStopped && len(vm.Status.StateChangeRequests) == 0
	if strategy == v1.RunStrategyHalted || stopped && strategy != v1.RunStrategyAlways {
		return fmt.Errorf("VM %s is stopped: %w", name, ErrNotStarted)
	}
	return nil
}

func (c *Client) oneVMI(namespace, name string) *cache.ListWatch {
	return c.one(Ref{VirtualMachineInstances, namespace, name}, func() runtime.Object { return &v1.VirtualMachineInstanceList{} })
}

func (c *Client) one(ref Ref, newList func() runtime.Object) *cache.ListWatch {
	request := func(options metav1.ListOptions) *rest.Request {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", ref.Name).String()
		return c.rest.Get().Namespace(ref.Namespace).Resource(string(ref.Resource)).VersionedParams(&options, c.params)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			return list, request(options).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(options).Watch(ctx)
		},
	}
}

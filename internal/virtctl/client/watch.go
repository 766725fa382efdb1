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

// ErrNotStarted says that waiting for a VMI is in vain: nothing is going to
// start it.
var ErrNotStarted = errors.New("it does not run")

// AwaitRunning returns as soon as the VMI runs. seen is called with each phase
// on the way. It does not wait for what will not come: a VMI in a final phase,
// one that does not exist and has no VM that would create it.
func (c *Client) AwaitRunning(ctx context.Context, namespace, name string, seen func(v1.VirtualMachineInstancePhase)) error {
	vmi, err := c.VMI(ctx, namespace, name)
	switch {
	case apierrors.IsForbidden(err):
		// A user who may open a console need not be allowed to read the object; the
		// server decides when the stream is asked for.
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

// expectedByVM reports whether a VM of that name is about to create the missing
// VMI; if there is no such VM it returns notFound.
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

// oneVMI lists and watches the VMI of one name.
func (c *Client) oneVMI(namespace, name string) *cache.ListWatch {
	return c.one(Ref{VirtualMachineInstances, namespace, name}, func() runtime.Object { return &v1.VirtualMachineInstanceList{} })
}

// one lists and watches one object.
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

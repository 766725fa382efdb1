// Package waiting finds a loop's objects that wait for another object, so that an event of that object enqueues them.
//
// It owns an index of them, so that an event costs only as much as there are waiting objects. Each loop decides
// whether an object waits, and for which other.
package waiting

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/logs"
)

const index = "drydock.waits-for"

// VM returns the index key of a VM in the waiting object's namespace.
func VM(name string) string { return "VirtualMachine/" + name }

// Snapshot returns the index key of a snapshot in the waiting object's namespace.
func Snapshot(name string) string { return "VirtualMachineSnapshot/" + name }

// Register adds the index of a kind to a cache, once. on returns the keys that an object waits for, and must not
// change the object.
func Register[T client.Object](ctx context.Context, indexer client.FieldIndexer, kind T, on func(T) []string) error {
	err := indexer.IndexField(ctx, kind, index, func(object client.Object) []string {
		of, is := object.(T)
		if !is {
			return nil
		}
		return on(of)
	})
	if err != nil {
		return fmt.Errorf("indexing what waits of the kind %T: %w", kind, err)
	}
	return nil
}

// For returns the objects that wait for a VM or a snapshot. list gives their kind.
func For(ctx context.Context, cache client.Reader, list client.ObjectList, other client.Object) []reconcile.Request {
	var on string
	switch other.(type) {
	case *v1.VirtualMachine:
		on = VM(other.GetName())
	case *snapshotv1.VirtualMachineSnapshot:
		on = Snapshot(other.GetName())
	}
	err := cache.List(ctx, list, client.InNamespace(other.GetNamespace()), client.MatchingFields{index: on}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log := ctrl.LoggerFrom(ctx).WithValues("object", client.ObjectKeyFromObject(other))
		if vm, is := other.(*v1.VirtualMachine); is {
			log = logs.VM(log, vm)
		}
		log.Error(err, "looking for what waits for an object")
		return nil
	}
	var requests []reconcile.Request
	// A list kind has items, and the function returns no error.
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if object, is := item.(client.Object); is {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

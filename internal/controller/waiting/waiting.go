// Package waiting finds the objects of a loop that wait for another object, so that an event
// of that has the loop look at them.
//
// It reads the cache only; whether an object waits is its loop's to say.
package waiting

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// For returns the objects that wait for another one of their namespace. list says of which kind they
// are; waits must not change what it is given.
func For[T client.Object](ctx context.Context, cache client.Reader, list client.ObjectList, other client.Object, waits func(T) bool) []reconcile.Request {
	if err := cache.List(ctx, list, client.InNamespace(other.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for what waits for an object", "object", client.ObjectKeyFromObject(other))
		return nil
	}
	var requests []reconcile.Request
	// The list has a kind's items, and for each no error.
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if object, is := item.(T); is && waits(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

// Package deletion deletes an object that the caller has seen, and no later object of its name.
//
// It owns the form of the request, and nothing else: the caller decides whether an object is to be deleted, and
// package mutationcache remembers earlier requests.
package deletion

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/versioned"
)

// Exact deletes the object of that name and UID. gone means that it did not exist any more. what names the kind in
// errors.
func Exact(ctx context.Context, writer client.Writer, object client.Object, what string, options ...client.DeleteOption) (gone bool, err error) {
	uid := object.GetUID()
	err = writer.Delete(ctx, object, append(options, client.Preconditions{UID: &uid})...)
	if versioned.Overtaken(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %s %s: %w", what, client.ObjectKeyFromObject(object), err)
	}
	return false, nil
}

// AsSeen deletes exactly the version that was seen. The error is the API server's own: NotFound or Conflict if that
// does not exist any more.
func AsSeen(ctx context.Context, writer client.Writer, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return writer.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// Once is Exact for an owner's dependent, unless its deletion was requested and the cache is late.
func Once(ctx context.Context, writer client.Writer, asked *mutationcache.Deletions, owner, dependent client.Object, what string) error {
	key := client.ObjectKeyFromObject(owner)
	if asked.Asked(key, dependent.GetUID()) {
		return nil
	}
	if _, err := Exact(ctx, writer, dependent, what); err != nil {
		return err
	}
	asked.Ask(key, dependent.GetUID())
	return nil
}

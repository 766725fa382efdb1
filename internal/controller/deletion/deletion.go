// Package deletion deletes an object that was seen, and no other that has its name by now.
//
// It owns how that is asked of the API server, and nothing else: whether an object is to go is
// the caller's decision, and what was asked for before is package mutationcache's memory.
package deletion

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/mutationcache"
)

// Exact deletes the object of that name and UID. gone means that there was nothing to delete: there
// is none of the name, or another one. what is what the object is, for the error.
func Exact(ctx context.Context, writer client.Writer, object client.Object, what string, options ...client.DeleteOption) (gone bool, err error) {
	uid := object.GetUID()
	err = writer.Delete(ctx, object, append(options, client.Preconditions{UID: &uid})...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %s %s: %w", what, client.ObjectKeyFromObject(object), err)
	}
	return false, nil
}

// AsSeen deletes the object in the very version that was seen. The error is the API server's own: of reason NotFound or
// Conflict if there is no such version any more.
func AsSeen(ctx context.Context, writer client.Writer, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return writer.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// Once is Exact for an owner's dependent, once as long as the cache still shows that.
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

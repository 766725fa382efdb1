// Package versioned reads objects, absent ones as nil, and writes them unless somebody else wrote in between. A conflict
// or a missing object is no error: the caller's loop reconciles again.
//
// With deletion, mutationcache and settle it is the kit of all loops. It must not decide the content of a write, or
// whether it is retried.
package versioned

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Read returns an object, nil if it does not exist. what names the kind in errors.
func Read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, what string, key client.ObjectKey) (P, error) {
	object := P(new(T))
	if found, err := Find(ctx, reader, what, key, object); err != nil || !found {
		return nil, err
	}
	return object, nil
}

// Find is Read into an object of the caller's, whose kind Go may not know. It reports whether the object exists.
func Find(ctx context.Context, reader client.Reader, what string, key client.ObjectKey, into client.Object) (bool, error) {
	err := reader.Get(ctx, key, into)
	if client.IgnoreNotFound(err) != nil {
		name := key.String()
		if key.Namespace == "" {
			name = key.Name
		}
		return false, fmt.Errorf("reading %s %s: %w", what, name, err)
	}
	return err == nil, nil
}

// CacheFirst returns a reader that gets an object from the API server if the cache lacks it. Lists are the cache's.
func CacheFirst(cache, server client.Reader) client.Reader { return cacheFirst{cache, server} }

type cacheFirst struct {
	client.Reader
	server client.Reader
}

// Get implements client.Reader.
func (c cacheFirst) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) {
		err = c.server.Get(ctx, key, into, options...)
	}
	return err
}

// Current reports whether the API server has exactly this version.
func Current[T any, P interface {
	*T
	client.Object
}](ctx context.Context, server client.Reader, what string, seen P) (bool, error) {
	stored, key := P(new(T)), client.ObjectKeyFromObject(seen)
	err := server.Get(ctx, key, stored)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("making sure of %s %s: %w", what, key, err)
	}
	return err == nil && stored.GetUID() == seen.GetUID() && stored.GetResourceVersion() == seen.GetResourceVersion(), nil
}

// Write writes the difference and returns the written version, zero if another writer was faster. doing begins the
// error.
func Write[T client.Object](ctx context.Context, c client.Client, doing string, from, to T) (T, error) {
	written := replica(to)
	return result(written, doing, c.Patch(ctx, written, difference(from)))
}

// Replace is Write for the whole object. After a patch the API server reads the object from JSON, which changes raw data
// with spaces.
func Replace[T client.Object](ctx context.Context, c client.Client, doing string, to T) (T, error) {
	written := replica(to)
	return result(written, doing, c.Update(ctx, written))
}

// WriteStatus is Write for the difference between two versions of an object's status.
func WriteStatus[T client.Object](ctx context.Context, c client.Client, doing string, from, to T) (T, error) {
	written := replica(to)
	return result(written, doing, c.Status().Patch(ctx, written, difference(from)))
}

// Patch is Write without the written version.
func Patch(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := Write(ctx, c, doing, from, to)
	return err
}

// PatchStatus is WriteStatus without the written version.
func PatchStatus(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := WriteStatus(ctx, c, doing, from, to)
	return err
}

// FollowStatus is PatchStatus for callers that write more afterwards: to gets the written version. It reports false
// when another writer was faster.
func FollowStatus(ctx context.Context, c client.Client, doing string, from, to client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(from, to) {
		return true, nil
	}
	written, err := WriteStatus(ctx, c, doing, from, to)
	if written == nil {
		return false, err
	}
	to.SetResourceVersion(written.GetResourceVersion())
	return true, nil
}

// The patch applies only to the version of from.
func difference(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

// replica keeps the API server's response out of the caller's object.
func replica[T client.Object](object T) T { return object.DeepCopyObject().(T) }

func result[T client.Object](written T, doing string, err error) (T, error) {
	if wrote, err := Outcome(doing, written, err); !wrote {
		var none T
		return none, err
	}
	return written, nil
}

// Outcome reports whether a conditional write took place. No error and false mean that another writer was faster.
func Outcome(doing string, object client.Object, answer error) (wrote bool, _ error) {
	if Overtaken(answer) {
		return false, nil
	}
	if answer != nil {
		return false, fmt.Errorf("%s %s: %w", doing, client.ObjectKeyFromObject(object), answer)
	}
	return true, nil
}

// Overtaken reports whether the object is gone, or is not the caller's version any more.
func Overtaken(answer error) bool {
	return apierrors.IsConflict(answer) || apierrors.IsNotFound(answer)
}

// HeldUp reports whether the API server refuses a write for now, since another admission webhook denies it or does not
// answer.
func HeldUp(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !Overtaken(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)
}

// Package versioned reads objects from the API server, past the cache, and writes them on condition that nobody wrote
// in between. A conflict or a missing object is no error: the caller's loop reconciles again.
//
// It must not decide the content of a write, or whether it is retried.
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
	err := reader.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		name := key.String()
		if key.Namespace == "" {
			name = key.Name
		}
		return nil, fmt.Errorf("reading %s %s: %w", what, name, err)
	}
	return object, nil
}

// Patch writes the difference between two versions of an object. doing begins the error and names the kind.
func Patch(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := Wrote(ctx, c, doing, from, to)
	return err
}

// Wrote is Patch that also reports whether it wrote: false means that another writer was faster.
func Wrote(ctx context.Context, c client.Client, doing string, from, to client.Object) (bool, error) {
	return outcome(doing, from, c.Patch(ctx, replica(to), difference(from)))
}

// PatchStatus writes the difference between two versions of an object's status.
func PatchStatus(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := outcome(doing, from, c.Status().Patch(ctx, replica(to), difference(from)))
	return err
}

// FollowStatus is PatchStatus for callers that write more of the object afterwards: to gets the written version. It
// reports false when another writer was faster, so that to is not the API server's object.
func FollowStatus(ctx context.Context, c client.Client, doing string, from, to client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(from, to) {
		return true, nil
	}
	written := replica(to)
	wrote, err := outcome(doing, from, c.Status().Patch(ctx, written, difference(from)))
	if wrote {
		to.SetResourceVersion(written.GetResourceVersion())
	}
	return wrote, err
}

// difference is a patch that applies only to the version of from.
func difference(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

// replica keeps the API server's response out of the caller's object.
func replica(object client.Object) client.Object { return object.DeepCopyObject().(client.Object) }

func outcome(doing string, object client.Object, err error) (wrote bool, _ error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s: %w", doing, client.ObjectKeyFromObject(object), err)
	}
	return true, nil
}

// HeldUp reports whether the API server refuses a write for now, because another admission webhook denies it or does
// not answer. Conflicts and permanent refusals are not such errors.
func HeldUp(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)
}

// Package versioned reads objects as the API server has them, past the cache, and writes them on condition that nobody
// has written in between. That somebody was faster, or that the object is gone, is no error: whoever asked looks again.
//
// It must not decide what is written, or whether it is tried again.
package versioned

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Read asks for an object, which is nil when there is none. what is what an error calls it.
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

// Patch writes how an object differs from what it was. doing is what an error says was being done, and to what kind.
func Patch(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := Wrote(ctx, c, doing, from, to)
	return err
}

// Wrote is Patch for whoever has to know whether it was written: false means that somebody was faster.
func Wrote(ctx context.Context, c client.Client, doing string, from, to client.Object) (bool, error) {
	return outcome(doing, from, c.Patch(ctx, replica(to), difference(from)))
}

// PatchStatus writes how the status of an object differs from what it was.
func PatchStatus(ctx context.Context, c client.Client, doing string, from, to client.Object) error {
	_, err := outcome(doing, from, c.Status().Patch(ctx, replica(to), difference(from)))
	return err
}

// FollowStatus is PatchStatus where more is to be written of the object afterwards: to gets the version that was written.
// It reports false when to is not what the API server has, because somebody was faster.
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

// difference is a patch that applies to the version of from alone.
func difference(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

// replica keeps what the API server answers out of the caller's object.
func replica(object client.Object) client.Object { return object.DeepCopyObject().(client.Object) }

// outcome is what the answer to a write means.
func outcome(doing string, object client.Object, err error) (wrote bool, _ error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s: %w", doing, client.ObjectKeyFromObject(object), err)
	}
	return true, nil
}

// HeldUp reports whether the API server refuses a write for now: another's admission webhook says no, or does not answer.
// It is none of what somebody else was faster with, and of what is refused for good.
func HeldUp(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)
}

package clientgo

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A sequence is for somebody who knows only the client's documentation.
type sequence struct {
	// name completes the sentence "the client sees that …".
	name string
	run  func(ctx context.Context) error
}

// runAll runs sequences in order, whatever the result of the earlier ones.
func runAll(t *testing.T, sequences []sequence) {
	t.Helper()
	for _, s := range sequences {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := s.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// object is any of the kinds.
type object interface {
	runtime.Object
	metav1.Object
}

type kindClient[T object, L runtime.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
	Get(context.Context, string, metav1.GetOptions) (T, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

type storage[T object, L runtime.Object] struct {
	client kindClient[T, L]
	// fresh returns a new valid object.
	fresh func(name string) T
	// items returns the items of a list.
	items func(L) []T
}

func storageOf[T any, P interface {
	*T
	object
}, L runtime.Object](client kindClient[P, L], items func(L) []T, fresh func(P)) storage[P, L] {
	return storage[P, L]{
		client: client,
		fresh: func(name string) P {
			o := P(new(T))
			o.SetName(name)
			o.SetLabels(map[string]string{"sequence": name})
			fresh(o)
			return o
		},
		items: func(list L) []P {
			var all []P
			for i := range items(list) {
				all = append(all, P(&items(list)[i]))
			}
			return all
		},
	}
}

// The objects' names begin with prefix.
func (s storage[T, L]) sequences(prefix string) []sequence {
	one, other := prefix+"-one", prefix+"-other"
	labeled := metav1.ListOptions{LabelSelector: "sequence=" + one}
	return []sequence{
		{"a dry run leaves nothing", func(ctx context.Context) error { return s.dryRun(ctx, one) }},
		{"what is created can be read and has an identity", func(ctx context.Context) error { return s.created(ctx, one) }},
		{"a name is given once", func(ctx context.Context) error {
			_, err := s.client.Create(ctx, s.fresh(one), metav1.CreateOptions{})
			return refused(err, errors.IsAlreadyExists, one)
		}},
		{"a list by label has one object and no other", func(ctx context.Context) error { return s.listed(ctx, one, other) }},
		{"a watch tells of a patch", func(ctx context.Context) error { return s.watched(ctx, one) }},
		{"who writes what is outdated is told so", func(ctx context.Context) error { return s.outdated(ctx, one) }},
		{"a patch whose test fails changes nothing", func(ctx context.Context) error {
			_, err := s.client.Patch(ctx, one, types.JSONPatchType,
				[]byte(`[{"op":"test","path":"/metadata/name","value":"nobody"},{"op":"add","path":"/metadata/labels/lost","value":"yes"}]`), metav1.PatchOptions{})
			// For a failed test the API server only says that it rejects the patch.
			return refused(err, errors.IsInvalid, "rejected")
		}},
		{"nobody has another's identity", func(ctx context.Context) error {
			uid := types.UID("00000000-0000-4000-8000-000000000000")
			err := s.client.Delete(ctx, one, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			return refused(err, errors.IsConflict, string(uid))
		}},
		{"what is deleted is gone", func(ctx context.Context) error {
			if err := s.client.Delete(ctx, other, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("deleting: %w", err)
			}
			return s.gone(ctx, other)
		}},
		{"a collection is deleted by its label", func(ctx context.Context) error {
			if err := s.client.DeleteCollection(ctx, metav1.DeleteOptions{}, labeled); err != nil {
				return fmt.Errorf("deleting by label: %w", err)
			}
			return s.gone(ctx, one)
		}},
		{"what was never there can't be changed or deleted", func(ctx context.Context) error {
			_, err := s.client.Patch(ctx, "nobody", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			if err := refused(err, errors.IsNotFound, "nobody"); err != nil {
				return err
			}
			return refused(s.client.Delete(ctx, "nobody", metav1.DeleteOptions{}), errors.IsNotFound, "nobody")
		}},
	}
}

func (s storage[T, L]) dryRun(ctx context.Context, name string) error {
	if _, err := s.client.Create(ctx, s.fresh(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return fmt.Errorf("creating in a dry run: %w", err)
	}
	_, err := s.client.Get(ctx, name, metav1.GetOptions{})
	return refused(err, errors.IsNotFound, name)
}

func (s storage[T, L]) created(ctx context.Context, name string) error {
	made, err := s.client.Create(ctx, s.fresh(name), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	read, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if read.GetUID() == "" || read.GetUID() != made.GetUID() || read.GetCreationTimestamp().Unix() <= 0 {
		return fmt.Errorf("created with UID %q, read with %q of %v", made.GetUID(), read.GetUID(), read.GetCreationTimestamp())
	}
	return nil
}

func (s storage[T, L]) listed(ctx context.Context, one, other string) error {
	if _, err := s.client.Create(ctx, s.fresh(other), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a second: %w", err)
	}
	for _, options := range []metav1.ListOptions{
		{LabelSelector: "sequence=" + one}, {FieldSelector: "metadata.name=" + one},
	} {
		list, err := s.client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("listing by %+v: %w", options, err)
		}
		if items := s.items(list); len(items) != 1 || items[0].GetName() != one {
			return fmt.Errorf("a list by %+v has %d objects", options, len(items))
		}
	}
	return nil
}

func (s storage[T, L]) watched(ctx context.Context, name string) error {
	read, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	events, err := s.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: read.GetResourceVersion(),
	})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer events.Stop()
	if _, err := s.client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patching: %w", err)
	}
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended before it told of the patch")
			}
			if seen, isT := event.Object.(T); isT && event.Type == watch.Modified && seen.GetLabels()["patched"] == "yes" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the watch does not tell of the patch: %w", ctx.Err())
		}
	}
}

func (s storage[T, L]) outdated(ctx context.Context, name string) error {
	before, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if _, err := s.client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"newer":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patching: %w", err)
	}
	before.SetLabels(map[string]string{"sequence": name, "outdated": "yes"})
	_, err = s.client.Update(ctx, before, metav1.UpdateOptions{})
	return refused(err, errors.IsConflict, name)
}

// Some objects wait for a controller's finalizer.
func (s storage[T, L]) gone(ctx context.Context, name string) error {
	for {
		list, err := s.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		if !slices.ContainsFunc(s.items(list), func(o T) bool { return o.GetName() == name }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still there: %w", name, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func refused(err error, is func(error) bool, sentence string) error {
	if err == nil {
		return fmt.Errorf("it succeeded, but should be refused")
	}
	if !is(err) || !contains(err.Error(), sentence) {
		return fmt.Errorf("got (%s) %w, want a sentence with %q", errors.ReasonForError(err), err, sentence)
	}
	return nil
}

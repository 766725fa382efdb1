//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is generous because a wait that succeeds ends at once.
const patience = 5 * time.Minute

// oneAttempt is the time limit of one of several attempts. An answer may never come: its node may be dead, or the
// request was lost before a network was up.
const oneAttempt = time.Minute

// await watches obj until seen accepts it and stores the accepted state in obj. what completes the sentence "waiting
// for ...".
func await[T client.Object](t *testing.T, obj T, list client.ObjectList, what string, seen func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	last, err := watchUntil(ctx, obj, list, seen)
	if err != nil {
		t.Fatalf("waiting for %s of %s: %v\nlast seen: %+v", what, obj.GetName(), err, last)
	}
	return last
}

// watchUntil watches again when a watch ends, for example because the API server was killed.
func watchUntil[T client.Object](ctx context.Context, obj T, list client.ObjectList, seen func(T) bool) (T, error) {
	last := obj
	for {
		w, err := cluster.client.Watch(ctx, list, client.InNamespace(obj.GetNamespace()),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", obj.GetName())})
		if err == nil {
			for event := range w.ResultChan() {
				current, ok := event.Object.(T)
				if !ok || event.Type == watch.Deleted {
					break
				}
				last = current
				if seen(current) {
					w.Stop()
					return current, nil
				}
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("not within %v: %w", patience, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func awaitGone(t *testing.T, obj client.Object) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to be gone", obj.GetName()), func(ctx context.Context) error {
		err := cluster.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if errors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is still there")
	})
}

// eventually repeats try until it succeeds. Use it where no watch exists.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	eventuallyWithin(t, patience, what, try)
}

// eventuallyWithin is eventually with a time limit. It also works in a cleanup, after the test's context has ended.
func eventuallyWithin(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	// Longer and longer pauses: most attempts ask the API server, or start a program.
	for pause := 100 * time.Millisecond; ; pause = min(pause*5/4, time.Second) {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(pause):
		}
	}
}

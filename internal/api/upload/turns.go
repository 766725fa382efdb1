package upload

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// These bound the requests that wait for workers, those of a namespace and all: each reads a pod twice in a second.
const (
	maxWaitingOfNamespace = 8
	maxWaiting            = 32
)

// turns bounds the requests in progress. The zero value has none.
type turns struct {
	mu      sync.Mutex
	claims  map[types.NamespacedName]bool
	waiting map[string][]*waiter // by namespace, the newest last
}

type waiter struct{ end context.CancelCauseFunc }

// enter admits one request at a time for a claim. Its worker takes no more either.
func (t *turns) enter(claim types.NamespacedName) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claims[claim] {
		return nil, receivesAnother(claim)
	}
	if t.claims == nil {
		t.claims = map[types.NamespacedName]bool{}
	}
	t.claims[claim] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.claims, claim)
	}, nil
}

// wait admits a request to those that wait for a worker, until stop is called. If all places are taken, the namespace with
// the most waiting requests loses its newest one, unless it has no more than the new request's namespace would have. The
// lost request's context ends, with a StatusError as its cause.
func (t *turns) wait(ctx context.Context, namespace string) (waiting context.Context, stop func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, busiest := 0, ""
	for name, waiters := range t.waiting {
		if all += len(waiters); len(waiters) > len(t.waiting[busiest]) {
			busiest = name
		}
	}
	own, most := len(t.waiting[namespace]), len(t.waiting[busiest])
	tooMany := func(namespace string, own int) error {
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d uploads to the namespace %s and %d in all wait for their workers; send this one again when they have begun",
			own, namespace, all), 1)
	}
	if own >= maxWaitingOfNamespace || all >= maxWaiting && most <= own+1 {
		return nil, nil, tooMany(namespace, own)
	}
	if all >= maxWaiting {
		newest := t.waiting[busiest][most-1]
		t.remove(busiest, newest)
		newest.end(tooMany(busiest, most))
	}
	waiting, end := context.WithCancelCause(ctx)
	w := &waiter{end: end}
	if t.waiting == nil {
		t.waiting = map[string][]*waiter{}
	}
	t.waiting[namespace] = append(t.waiting[namespace], w)
	return waiting, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.remove(namespace, w)
		end(nil)
	}, nil
}

// remove does nothing if the request no longer waits. The caller holds t.mu.
func (t *turns) remove(namespace string, w *waiter) {
	t.waiting[namespace] = slices.DeleteFunc(t.waiting[namespace], func(other *waiter) bool { return other == w })
	if len(t.waiting[namespace]) == 0 {
		delete(t.waiting, namespace)
	}
}

func receivesAnother(claim types.NamespacedName) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("PVC %s receives another upload already", claim))
}

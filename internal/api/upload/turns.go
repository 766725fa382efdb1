package upload

import (
	"fmt"
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
	waiting map[string]int
	all     int
}

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

// wait admits a request to those that wait for a worker.
func (t *turns) wait(namespace string) (stop func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[namespace] >= maxWaitingOfNamespace || t.all >= maxWaiting {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d uploads to the namespace %s and %d in all wait for their workers; send this one again when they have begun",
			t.waiting[namespace], namespace, t.all), 1)
	}
	if t.waiting == nil {
		t.waiting = map[string]int{}
	}
	t.waiting[namespace]++
	t.all++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all--
		if t.waiting[namespace]--; t.waiting[namespace] == 0 {
			delete(t.waiting, namespace)
		}
	}, nil
}

func receivesAnother(claim types.NamespacedName) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("PVC %s receives another upload already", claim))
}

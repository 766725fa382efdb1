// Package requests passes users' requests to the goroutine that acts on the guest, and its answers back.
//
// A Requests belongs to one QEMU. power.Queue accepts, ignores or refuses requests; the owner acts in their turn. Requests
// are kept nowhere else: when virt-handler ends, the waiting ones have had no effect.
package requests

import (
	"context"
	"fmt"
	"sync"

	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Requests has the requests of one guest. Its methods are safe for concurrent use.
type Requests struct {
	wake func()

	mu      sync.Mutex
	queue   power.Queue
	results map[power.Ticket]*result
}

// err is set before done is closed.
type result struct {
	done chan struct{}
	err  error
}

// New returns an empty Requests. It calls wake when a request has come.
func New(wake func()) *Requests {
	return &Requests{wake: wake, results: map[power.Ticket]*result{}}
}

// Ask waits until the owner has acted on a request, or returns a *power.Refusal. The request has no effect if ctx ends
// before its turn.
func (r *Requests) Ask(ctx context.Context, request power.Request) error {
	of, waits, err := r.add(request)
	if err != nil {
		return err
	}
	r.wake()
	select {
	case <-waits.done:
		return waits.err
	case <-ctx.Done():
		// A request that was taken keeps its result.
		r.mu.Lock()
		dropped := false
		if r.queue, dropped = r.queue.Drop(of); dropped {
			delete(r.results, of)
		}
		r.mu.Unlock()
		return fmt.Errorf("waiting for virt-handler to act on the request to %s the guest: %w", request, ctx.Err())
	}
}

func (r *Requests) add(request power.Request) (power.Ticket, *result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, of, answer, reason := r.queue.Add(request)
	r.queue = next
	switch answer {
	case power.Refused:
		return of, nil, &power.Refusal{Message: reason}
	case power.Accepted:
		r.results[of] = &result{done: make(chan struct{})}
	case power.Ignored:
		// The equal request has the result.
	}
	return of, r.results[of], nil
}

// Turn is a request that the owner acts on. The owner calls Finish once.
type Turn struct {
	Request power.Request
	Finish  func(error)
}

// Take returns the waiting requests in the order of their arrival.
func (r *Requests) Take() []Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, turn := r.queue.Take()
	r.queue = next
	list := make([]Turn, 0, len(turn))
	for _, of := range turn {
		list = append(list, Turn{of.Request, func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queue = r.queue.Finish(of)
			done := r.results[of]
			delete(r.results, of)
			done.err = err
			close(done.done)
		}})
	}
	return list
}

// Close refuses the waiting and all later requests.
func (r *Requests) Close(reason string) {
	r.mu.Lock()
	r.queue = r.queue.Close(reason)
	r.mu.Unlock()
	for _, t := range r.Take() {
		t.Finish(&power.Refusal{Message: reason})
	}
}

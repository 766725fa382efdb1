// Package requests brings users' requests to a running guest from the goroutines that wait for the answers to the
// goroutine that acts on the guest.
//
// A Requests belongs to one QEMU. power.Queue decides about requests that arrive; the owner decides and acts in their
// turn. Requests are not kept anywhere else: if virt-handler ends, those that wait have had no effect.
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

// New returns an empty Requests. wake is called when there is a request to take.
func New(wake func()) *Requests {
	return &Requests{wake: wake, results: map[power.Ticket]*result{}}
}

// Ask waits until the owner has acted on a request. It returns a *power.Refusal if the request is refused. A request
// has no effect if ctx ends before its turn.
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
		// The result of a request that was taken comes nevertheless.
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
		// The result is that of the equal request.
	}
	return of, r.results[of], nil
}

// Turn is a request whose turn has come. The owner calls Finish once.
type Turn struct {
	Request power.Request
	Finish  func(error)
}

// Take returns the requests that wait, in the order of their arrival.
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

// Close refuses the requests that wait, and all later ones.
func (r *Requests) Close(reason string) {
	r.mu.Lock()
	r.queue = r.queue.Close(reason)
	r.mu.Unlock()
	for _, t := range r.Take() {
		t.Finish(&power.Refusal{Message: reason})
	}
}

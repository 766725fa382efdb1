package qmp

import "sync"

// queue holds events between their arrival and their delivery. It has no
// bound: a bound would either lose an event or stop the reader, and with it
// the answer that the receiver of an earlier event may be waiting for. QEMU
// itself limits the rate of the events that could come in floods.
type queue struct {
	mu     sync.Mutex
	ready  *sync.Cond
	events []Event
	closed bool
	done   chan struct{}
}

func newQueue() *queue {
	q := &queue{done: make(chan struct{})}
	q.ready = sync.NewCond(&q.mu)
	return q
}

func (q *queue) add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, e)
	q.ready.Signal()
}

// close lets deliver end once everything that was added is delivered.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Signal()
}

// deliver is the goroutine that calls the receiver.
func (q *queue) deliver(receiver func(Event)) {
	defer close(q.done)
	for {
		events, more := q.take()
		for _, e := range events {
			if receiver != nil {
				receiver(e)
			}
		}
		if !more {
			return
		}
	}
}

// take waits for events; more is false when there will be no others.
func (q *queue) take() (events []Event, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.events) == 0 && !q.closed {
		q.ready.Wait()
	}
	events, q.events = q.events, nil
	return events, !q.closed
}

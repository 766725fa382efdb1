package qmp

import "sync"

// maxPending bounds the bytes of events that wait. A real QEMU limits the rate of
// what could come in floods; one in a guest's hands could fill its reader's memory.
const maxPending = 2 << 20

// eventCost is what an event takes beside its text.
const eventCost = 64

// queue holds events between their arrival and their delivery. Nothing waits for
// room in it: that would stop the reader, and with it the answer that the receiver
// of an earlier event may be waiting for.
type queue struct {
	mu      sync.Mutex
	ready   *sync.Cond
	events  []Event
	pending int
	closed  bool
	done    chan struct{}
}

func newQueue() *queue {
	q := &queue{done: make(chan struct{})}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// add takes an event in; false means that there are too many.
func (q *queue) add(e Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending += eventCost + len(e.Name) + len(e.Data)
	if q.pending > maxPending {
		return false
	}
	q.events = append(q.events, e)
	q.ready.Signal()
	return true
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
	events, q.events, q.pending = q.events, nil, 0
	return events, !q.closed
}

package qmp

import "sync"

// maxPending is in bytes: a QEMU under a guest's control could fill its reader's memory.
const maxPending = 2 << 20

const eventCost = 64 // bytes beside the event's text

// queue holds events until their delivery. add never blocks the reader, for whose answer the receiver of an earlier event
// may wait.
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

// add returns false if there are too many events.
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

// close ends deliver after all added events.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Signal()
}

func (q *queue) deliver(receiver func(Event)) {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.events) == 0 && !q.closed {
			q.ready.Wait()
		}
		events, more := q.events, !q.closed
		q.events, q.pending = nil, 0
		q.mu.Unlock()
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

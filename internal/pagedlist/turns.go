package pagedlist

import (
	"context"
	"reflect"
	"sync"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Admission must not wait for lists of other kinds.
var process sync.Map // of reflect.Type: *turns

func turnsOf(empty client.ObjectList) *turns {
	kind := reflect.TypeOf(empty)
	found, ok := process.Load(kind)
	if !ok {
		b := ofOthers
		if _, is := empty.(*corev1.PodList); is {
			b = ofPods
		}
		found, _ = process.LoadOrStore(kind, &turns{bounds: b, all: semaphore.NewWeighted(b.atOnce), queues: map[string]*queue{}})
	}
	return found.(*turns)
}

// turns bounds the lists at one time, of all namespaces and of each, so that no tenant takes all the room.
type turns struct {
	bounds bounds
	all    *semaphore.Weighted

	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	turn *semaphore.Weighted
	// lists counts the lists that wait or have their turn.
	lists int
}

// begin waits until a list of the namespace may begin. The list must call end.
func (t *turns) begin(ctx context.Context, namespace string) (end func(), err error) {
	q := t.enter(namespace)
	if err := q.turn.Acquire(ctx, 1); err != nil {
		t.leave(namespace)
		return nil, err
	}
	if err := t.all.Acquire(ctx, 1); err != nil {
		q.turn.Release(1)
		t.leave(namespace)
		return nil, err
	}
	return func() {
		t.all.Release(1)
		q.turn.Release(1)
		t.leave(namespace)
	}, nil
}

func (t *turns) enter(namespace string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[namespace]
	if q == nil {
		q = &queue{turn: semaphore.NewWeighted(t.bounds.oneEach)}
		t.queues[namespace] = q
	}
	q.lists++
	return q
}

func (t *turns) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[namespace]
	if q.lists--; q.lists == 0 {
		delete(t.queues, namespace)
	}
}

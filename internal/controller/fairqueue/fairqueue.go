// Package fairqueue is a control loop's queue that serves namespaces in turn: one tenant's objects don't delay another's.
//
// It must only order requests: the loop decides how they are handled and retried.
package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New is a NewQueue for controller options. A namespace's requests keep their order.
func New(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: NewTurns()})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
}

// Turns holds the waiting requests. It is not safe for concurrent use.
type Turns struct {
	// waiting has the requests of each namespace that has any; turns is the order of these namespaces.
	waiting map[string][]reconcile.Request
	turns   []string
	count   int
}

var _ workqueue.Queue[reconcile.Request] = (*Turns)(nil)

// NewTurns returns an empty queue.
func NewTurns() *Turns { return &Turns{waiting: map[string][]reconcile.Request{}} }

// Touch does nothing: an added request keeps its place.
func (*Turns) Touch(reconcile.Request) {}

// Push adds a request. A new namespace goes to the end.
func (t *Turns) Push(request reconcile.Request) {
	namespace := request.Namespace
	if len(t.waiting[namespace]) == 0 {
		t.turns = append(t.turns, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], request)
	t.count++
}

// Len returns the number of waiting requests.
func (t *Turns) Len() int { return t.count }

// Pop removes the first request of the next namespace. The queue must not be empty.
func (t *Turns) Pop() reconcile.Request {
	namespace := t.turns[0]
	t.turns = t.turns[1:]
	waiting := t.waiting[namespace]
	request := waiting[0]
	t.count--
	if len(waiting) == 1 {
		delete(t.waiting, namespace)
		return request
	}
	waiting[0] = reconcile.Request{}
	t.waiting[namespace] = waiting[1:]
	t.turns = append(t.turns, namespace)
	return request
}

// Package fairqueue has the queue of a control loop that serves namespaces in turn, so that
// the objects of one tenant don't keep those of another waiting.
//
// It orders what waits; what is done, and when it is tried again, is the loop's.
package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New is a NewQueue of a controller's options. In a namespace requests keep their order.
func New(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: NewTurns()})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
}

// Turns holds the requests that wait. Its caller sees to it that no two use it at once.
type Turns struct {
	// waiting are the requests of each namespace that has any, turns these namespaces in
	// the order in which they are served.
	waiting map[string][]reconcile.Request
	turns   []string
	count   int
}

var _ workqueue.Queue[reconcile.Request] = (*Turns)(nil)

// NewTurns makes an empty one.
func NewTurns() *Turns { return &Turns{waiting: map[string][]reconcile.Request{}} }

// Touch does nothing: a request that is added again keeps its place.
func (*Turns) Touch(reconcile.Request) {}

// Push adds a request. A namespace that had none is served after those that wait.
func (t *Turns) Push(request reconcile.Request) {
	namespace := request.Namespace
	if len(t.waiting[namespace]) == 0 {
		t.turns = append(t.turns, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], request)
	t.count++
}

// Len is how many requests wait.
func (t *Turns) Len() int { return t.count }

// Pop takes the first request of the namespace whose turn it is. There must be one.
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

//go:build apiserver

package controller

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/fairqueue"
)

// putOff is the longest delay of a request that still counts as work: a read that its cache lags behind, or one of the
// first few retries. The times of a plan are longer.
const putOff = time.Second

// awaitSettled waits until the loops have handled the last change: every event handler has received the last version of
// every object that the API server has of the kind, all queues are empty, and every write is answered. Events are written
// beside the queues. It does not depend on time.
func (w *world) awaitSettled() {
	w.t.Helper()
	w.eventually("the loops to settle", func() (bool, string) {
		before := w.progress.count()
		if why := w.progress.working(); why != "" {
			return false, why
		}
		if why := w.unseen(); why != "" {
			return false, why
		}
		if why := w.progress.working(); why != "" {
			return false, why
		}
		if n := w.writes.unanswered(); n > 0 {
			return false, fmt.Sprintf("%d of their writes are not answered", n)
		}
		return w.progress.count() == before, "they went on while the API server was asked"
	})
}

// progress records what the loops of a manager have received and have left to do.
type progress struct {
	mu sync.Mutex
	// steps counts handled events and queued requests.
	steps    int
	handlers []*observedHandler
	queues   []*observedQueue
	// loops is the final number of queues.
	loops int
}

func (p *progress) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steps
}

func (p *progress) kinds() []schema.GroupVersionKind {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kinds []schema.GroupVersionKind
	for _, h := range p.handlers {
		if !slices.Contains(kinds, h.kind) {
			kinds = append(kinds, h.kind)
		}
	}
	return kinds
}

// working describes the loops' open work, or returns "".
func (p *progress) working() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queues) < p.loops {
		return fmt.Sprintf("%d of %d loops have a queue", len(p.queues), p.loops)
	}
	for _, q := range p.queues {
		if !q.served {
			return fmt.Sprintf("the loop %s has not begun", q.name)
		}
		if q.unfinished > 0 || len(q.delayed) > 0 {
			return fmt.Sprintf("the loop %s works on %d requests and has put off %v", q.name, q.unfinished, slices.Collect(maps.Keys(q.delayed)))
		}
	}
	return ""
}

// unseen describes an object of the API server that the event handlers have not received, or returns "". Objects of
// other tests' namespaces do not count.
func (w *world) unseen() string {
	w.t.Helper()
	w.progress.mu.Lock()
	handlers := slices.Clone(w.progress.handlers)
	w.progress.mu.Unlock()
	there := map[schema.GroupVersionKind]map[client.ObjectKey]string{}
	for _, h := range handlers {
		if there[h.kind] == nil {
			there[h.kind] = w.versions(h.kind)
		}
		if got := h.versions(func(key client.ObjectKey) bool { return w.concerns(key.Namespace) }); !maps.Equal(got, there[h.kind]) {
			return fmt.Sprintf("of the kind %s a loop was told of %v, there is %v", h.kind.Kind, got, there[h.kind])
		}
	}
	return ""
}

func (w *world) concerns(namespace string) bool { return namespace == "" || namespace == w.namespace }

// versions returns the resource versions of the objects of a kind, within the loops' watch.
func (w *world) versions(kind schema.GroupVersionKind) map[client.ObjectKey]string {
	w.t.Helper()
	options := []client.ListOption{client.InNamespace(w.namespace)}
	for object, by := range w.watched {
		if of, err := apiutil.GVKForObject(object, w.client.Scheme()); err == nil && of == kind && by.Label != nil {
			options = append(options, client.MatchingLabelsSelector{Selector: by.Label})
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	w.do("listing "+kind.Kind, w.client.List(w.ctx, list, options...))
	out := map[client.ObjectKey]string{}
	for _, item := range list.Items {
		out[client.ObjectKeyFromObject(&item)] = item.ResourceVersion
	}
	return out
}

type observedManager struct {
	ctrl.Manager
	progress *progress
}

func (m observedManager) GetCache() cache.Cache {
	return observedCache{m.Manager.GetCache(), m.Manager, m.progress}
}

// The type of loops is controller-runtime's own; its fields are not.
func (m observedManager) Add(runnable manager.Runnable) error {
	if value := reflect.Indirect(reflect.ValueOf(runnable)); value.Kind() == reflect.Struct {
		if field := value.FieldByName("NewQueue"); field.IsValid() {
			field.Set(reflect.ValueOf(m.progress.newQueue))
			m.progress.loops++
		}
	}
	return m.Manager.Add(runnable)
}

type observedCache struct {
	cache.Cache
	manager  ctrl.Manager
	progress *progress
}

func (c observedCache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, object, options...)
	if err != nil {
		return nil, err
	}
	kind, err := apiutil.GVKForObject(object, c.manager.GetScheme())
	return observedInformer{informer, kind, c.progress}, err
}

type observedInformer struct {
	cache.Informer
	kind     schema.GroupVersionKind
	progress *progress
}

// AddEventHandlerWithOptions adds the handlers of a loop.
func (i observedInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	observed := &observedHandler{next: handler, kind: i.kind, progress: i.progress, told: map[client.ObjectKey]string{}}
	i.progress.mu.Lock()
	i.progress.handlers = append(i.progress.handlers, observed)
	i.progress.mu.Unlock()
	return i.Informer.AddEventHandlerWithOptions(observed, options)
}

// observedHandler records an event after the loop's handler has queued its requests.
type observedHandler struct {
	next     toolscache.ResourceEventHandler
	kind     schema.GroupVersionKind
	progress *progress
	told     map[client.ObjectKey]string
}

func (h *observedHandler) OnAdd(object any, initial bool) {
	h.next.OnAdd(object, initial)
	h.record(object, false)
}

func (h *observedHandler) OnUpdate(before, after any) {
	h.next.OnUpdate(before, after)
	h.record(after, false)
}

func (h *observedHandler) OnDelete(object any) {
	h.next.OnDelete(object)
	if last, unknown := object.(toolscache.DeletedFinalStateUnknown); unknown {
		object = last.Obj
	}
	h.record(object, true)
}

func (h *observedHandler) record(object any, gone bool) {
	h.progress.mu.Lock()
	defer h.progress.mu.Unlock()
	h.progress.steps++
	of := object.(client.Object)
	if key := client.ObjectKeyFromObject(of); gone {
		delete(h.told, key)
	} else {
		h.told[key] = of.GetResourceVersion()
	}
}

func (h *observedHandler) versions(count func(client.ObjectKey) bool) map[client.ObjectKey]string {
	h.progress.mu.Lock()
	defer h.progress.mu.Unlock()
	out := maps.Clone(h.told)
	maps.DeleteFunc(out, func(key client.ObjectKey, _ string) bool { return !count(key) })
	return out
}

// observedQueue is client-go's queue with counters. The queue's own metrics are exact: they change under its lock.
type observedQueue struct {
	workqueue.TypedInterface[reconcile.Request]
	name     string
	progress *progress
	// served is set as soon as a worker waits, which it does when every source of the loop has synced.
	served bool
	// unfinished counts the requests that are queued or in work.
	unfinished int
	// delayed are the requests that come within putOff.
	delayed map[reconcile.Request]struct{}
}

func (p *progress) newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := &observedQueue{name: name, progress: p, delayed: map[reconcile.Request]struct{}{}}
	q.TypedInterface = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Name: name, Queue: fairqueue.NewTurns(), MetricsProvider: queueCounters{queue: q},
	})
	p.mu.Lock()
	p.queues = append(p.queues, q)
	p.mu.Unlock()
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Queue: q})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{DelayingQueue: observedDelays{delaying, q}})
}

func (q *observedQueue) Get() (reconcile.Request, bool) {
	q.progress.mu.Lock()
	q.served = true
	q.progress.mu.Unlock()
	return q.TypedInterface.Get()
}

// Add is also called at the end of a delay.
func (q *observedQueue) Add(request reconcile.Request) {
	q.TypedInterface.Add(request)
	q.progress.mu.Lock()
	defer q.progress.mu.Unlock()
	delete(q.delayed, request)
	q.progress.steps++
}

// observedDelays records short delays.
type observedDelays struct {
	workqueue.TypedDelayingInterface[reconcile.Request]
	queue *observedQueue
}

func (d observedDelays) AddAfter(request reconcile.Request, delay time.Duration) {
	if delay < putOff {
		d.queue.progress.mu.Lock()
		d.queue.delayed[request] = struct{}{}
		d.queue.progress.mu.Unlock()
	}
	d.TypedDelayingInterface.AddAfter(request, delay)
}

// queueCounters counts the requests of a queue: up when it takes one in, and down when one is done.
type queueCounters struct{ queue *observedQueue }

// change counts requests.
type change struct {
	queue *observedQueue
	by    int
}

func (c change) Inc() {
	c.queue.progress.mu.Lock()
	defer c.queue.progress.mu.Unlock()
	c.queue.unfinished += c.by
}

func (c change) Observe(float64) { c.Inc() }
func (change) Dec()              {}
func (change) Set(float64)       {}

func (c queueCounters) NewAddsMetric(string) workqueue.CounterMetric { return change{c.queue, 1} }

func (c queueCounters) NewWorkDurationMetric(string) workqueue.HistogramMetric {
	return change{c.queue, -1}
}

func (c queueCounters) NewDepthMetric(string) workqueue.GaugeMetric       { return change{c.queue, 0} }
func (c queueCounters) NewLatencyMetric(string) workqueue.HistogramMetric { return change{c.queue, 0} }
func (c queueCounters) NewRetriesMetric(string) workqueue.CounterMetric   { return change{c.queue, 0} }

func (c queueCounters) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return change{c.queue, 0}
}

func (c queueCounters) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return change{c.queue, 0}
}

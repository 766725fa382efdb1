package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/process"
)

// A tenant chooses the size of a page (package pagedlist).
func TestWhatTheLoopsListIsBounded(t *testing.T) {
	large := strings.Repeat("x", 3<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "small"
		if r.URL.Query().Get("limit") == "100" {
			name = large
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":%q}}]}`, name)
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range newScheme().AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mgr, err := newManager(&rest.Config{Host: server.URL}, options{
		namespace: "kubevirt", identity: "one", mapper: mapper,
		serving: metricsserver.Options{Metrics: metricsserver.None, Health: metricsserver.None},
	}, &process.Pace{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := pagedlist.Collect(t.Context(), mgr.GetAPIReader(), &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) { return pod.Name, true })
	if err != nil || len(found) != 1 || found[0] != "small" {
		t.Errorf("found %.100q, %v", found, err)
	}
}

// TestALoopEndsInTheMiddleOfItsWork ends loops whose requests cause further requests, each at another moment. Each must
// end without an error.
func TestALoopEndsInTheMiddleOfItsWork(t *testing.T) {
	const rounds, grace = 40, 2 * time.Minute
	for range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		ended := runBusyLoop(ctx, t)
		// The test varies the moment; it waits for nothing.
		time.Sleep(rand.N(10 * time.Millisecond))
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("running the loop: %v", err)
			}
		case <-time.After(grace):
			t.Fatalf("the loop has not ended within %s", grace)
		}
	}
}

// Every finished request causes another one.
func runBusyLoop(ctx context.Context, t *testing.T) <-chan error {
	t.Helper()
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func() {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint(rand.Int())}})
	}
	settings := pace(workers)
	settings.DefaultFromConfig(loopDefaults(options{several: true}))
	settings.Reconciler = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		add()
		return reconcile.Result{}, nil
	})
	loop, err := controller.NewUnmanaged("busy", settings)
	if err != nil {
		t.Fatal(err)
	}
	first := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		for range workers {
			add()
		}
		return nil
	})
	if err := loop.Watch(first); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- loop.Start(ctx) }()
	return ended
}

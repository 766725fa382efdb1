package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

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

// runBusyLoop runs a loop with virt-controller's settings, in which every finished request causes another one.
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

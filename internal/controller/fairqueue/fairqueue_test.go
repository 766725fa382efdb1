package fairqueue

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func request(of string) reconcile.Request {
	namespace, name, _ := strings.Cut(of, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func TestNamespacesAreServedInTurn(t *testing.T) {
	for pushed, want := range map[string]string{
		"a/1 a/2 a/3":             "a/1 a/2 a/3",
		"a/1 a/2 a/3 b/1 b/2":     "a/1 b/1 a/2 b/2 a/3",
		"a/1 a/2 a/3 a/4 b/1 c/1": "a/1 b/1 c/1 a/2 a/3 a/4",
		// A "-" stands for the removal of the first request.
		"a/1 a/2 - - a/3 b/1":     "a/1 a/2 a/3 b/1",
		"a/1 a/2 a/3 - b/1 - a/4": "a/1 a/2 b/1 a/3 a/4",
	} {
		turns := NewTurns()
		var got []string
		pop := func() { got = append(got, turns.Pop().String()) }
		for _, of := range strings.Fields(pushed) {
			if of == "-" {
				pop()
			} else {
				turns.Push(request(of))
			}
		}
		for turns.Len() > 0 {
			pop()
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s comes out as %q, want %s", pushed, got, want)
		}
		if len(turns.waiting) != 0 || len(turns.turns) != 0 {
			t.Errorf("%s leaves %v and %v", pushed, turns.waiting, turns.turns)
		}
	}
}

// TestOneTenantDoesNotKeepAnotherWaiting queues thousands of objects of one namespace. Another's must be served
// soon.
func TestOneTenantDoesNotKeepAnotherWaiting(t *testing.T) {
	queue := New("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](0, 0))
	defer queue.ShutDown()
	for i := range 2000 {
		queue.Add(request(fmt.Sprintf("crowd/%d", i)))
	}
	queue.Add(request("other/1"))
	for range 2 {
		got, _ := queue.Get()
		queue.Done(got)
		if got.Namespace == "other" {
			return
		}
		queue.Add(got)
	}
	t.Errorf("the other namespace waits, with %d requests in the queue", queue.Len())
}

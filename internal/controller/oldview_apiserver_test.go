//go:build apiserver

package controller

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// heldWatch delays the API server's events of one resource for the loops' cache, while it is held.
type heldWatch struct {
	resource string
	mu       sync.Mutex
	held     chan struct{}
}

// hold begins to hold the watch; letGo ends it.
func (h *heldWatch) hold() (letGo func()) {
	held := make(chan struct{})
	h.mu.Lock()
	h.held = held
	h.mu.Unlock()
	return sync.OnceFunc(func() { close(held) })
}

func (h *heldWatch) wrap(next http.RoundTripper) http.RoundTripper { return heldTransport{next, h} }

type heldTransport struct {
	next  http.RoundTripper
	watch *heldWatch
}

func (t heldTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && strings.HasSuffix(req.URL.Path, "/"+t.watch.resource) && req.URL.Query().Get("watch") != "" {
		resp.Body = heldBody{resp.Body, t.watch, req.Context().Done()}
	}
	return resp, err
}

type heldBody struct {
	io.ReadCloser
	watch *heldWatch
	ended <-chan struct{}
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watch.mu.Lock()
	held := b.watch.held
	b.watch.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.ended:
		}
	}
	return n, err
}

// The guest runs, but the cache does not show it yet. Its migration must not fail because of that: a failure is
// final.
func TestAMigrationIsNotFailedByAnOldView(t *testing.T) {
	w := newWorld(t)
	w.stop()
	vmis := &heldWatch{resource: "virtualmachineinstances"}
	w.config.Wrap(vmis.wrap)
	w.startLoops()
	w.createVMI("vmi")
	pod := w.awaitLauncher("vmi")
	w.bind(pod)
	w.awaitPhase("vmi", v1.Scheduled)
	letGo := vmis.hold()
	t.Cleanup(letGo)
	w.phase("vmi", v1.Running)
	m := w.migrate("move", "vmi")
	target := w.awaitTarget(m)
	if m = w.migration(m.Name); m.IsFinal() {
		t.Fatalf("it is %s: %+v", m.Status.Phase, m.Status.MigrationState)
	}
	letGo()
	w.bringTo(m, v1.MigrationRunning, otherNode)
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	if w.deleting(target) {
		t.Error("the pod that the guest runs in is being deleted")
	}
}

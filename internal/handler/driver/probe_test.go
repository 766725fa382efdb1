package driver

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
)

// During the node's probe no guest starts, since the accelerator is unknown. Running guests are managed normally.
func TestOnlyStartsWaitForTheProbe(t *testing.T) {
	n := newModelNode(t, scheduled("probed"))
	var known atomic.Bool
	var asked atomic.Int64
	n.kvm = func() (bool, bool) {
		asked.Add(1)
		return false, known.Load()
	}
	m := n.launcher()
	start := m.Started
	m.Started = func(s launch.Start) error {
		if !known.Load() {
			t.Error("a guest is started before the probe has ended")
			return errors.New("too early")
		}
		return start(s)
	}
	pod := n.newPod(n.api.vmi)
	first := n.startHandler(pod)
	looks(t, first, &asked, m.Connected)
	looks(t, first, &asked, func() bool { return true })
	known.Store(true)
	first.supervisor.WakeAll()
	n.api.await(t, "a guest that runs", well)
	first.stop()

	known.Store(false)
	second := n.startHandler(pod)
	if err := n.machine(second, "probed").Pause(t.Context()); err != nil {
		t.Errorf("a guest that runs is not served: %v", err)
	}
}

// looks wakes the drivers until a condition is true, and once more.
func looks(t *testing.T, h *handler, asked *atomic.Int64, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.Tick(time.Millisecond); !so(); <-tick {
		if time.Now().After(deadline) {
			t.Fatal("the drivers do not get there")
		}
		h.supervisor.WakeAll()
	}
	for tick, before := time.Tick(time.Millisecond), asked.Load(); asked.Load() < before+2; <-tick {
		if time.Now().After(deadline) {
			t.Fatal("the drivers do not look again")
		}
		h.supervisor.WakeAll()
	}
}

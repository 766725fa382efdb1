package driver

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// TestARequestThatWaitsWhenVirtHandlerEndsHasNoEffect: virt-handler ends while it acts on the request before.
func TestARequestThatWaitsWhenVirtHandlerEndsHasNoEffect(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "requests")
	guest := n.machine(h, "requests")
	acts, release := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(acts) })
	m.qemu.Override("stop", func(json.RawMessage) (any, error) {
		begun()
		<-release
		return map[string]any{}, nil
	})
	ask := func(do func(context.Context) error) <-chan error {
		result := make(chan error, 1)
		go func() { result <- do(t.Context()) }()
		return result
	}
	pause := ask(guest.Pause)
	<-acts
	reset := ask(guest.Reset)
	h.stop()
	if err := <-pause; err == nil {
		t.Error("the guest was paused by a QEMU that did not answer")
	}
	if err := <-reset; err == nil || !strings.Contains(err.Error(), "or virt-handler there has not connected to it yet; try again") {
		t.Errorf("the reset: %v", err)
	}
	close(release)
	m.qemu.Override("stop", nil)
	// The next virt-handler finds the guest as it was.
	next := n.machine(n.startHandler(n.newPod(n.api.vmi)), "requests")
	if err := next.Pause(t.Context()); err != nil {
		t.Errorf("a pause under the next virt-handler: %v", err)
	}
	if got := m.qemu.Executed("system_reset"); got != 0 {
		t.Errorf("the guest was reset %d times", got)
	}
}

// The driver has not seen yet that the guest is stopped.
func TestARebootIsDecidedOnWhatQEMUSaysThen(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "reboot")
	guest := n.machine(h, "reboot")
	var reboots atomic.Int32
	n.connectAgent(m, func(command string) {
		if command == "guest-ping" { // with which a reboot begins
			reboots.Add(1)
		}
	})
	m.qemu.SetRunState("paused")
	if err := guest.SoftReboot(t.Context()); err == nil || !strings.Contains(err.Error(), "VMI is paused") || reboots.Load() > 0 {
		t.Errorf("a reboot of a guest that is stopped: %v; its agent was asked %d times", err, reboots.Load())
	}
	m.qemu.SetRunState(runstate.Running)
	// This agent knows no reboot.
	if err := guest.SoftReboot(t.Context()); err != nil || reboots.Load() != 1 || m.qemu.Executed("send-key") != 1 {
		t.Errorf("a reboot of a guest that runs: %v; its agent was asked %d times, QEMU was told %v", err, reboots.Load(), m.qemu.Commands())
	}
}

// Each request would wait for QEMU's answer, and the driver could do nothing else: not even end the guest.
func TestASilentQEMUHoldsUpTheDriverOnce(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "silent")
	guest := n.machine(h, "silent")
	acts, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	begun := sync.OnceFunc(func() { close(acts) })
	m.qemu.Override("query-migrate", func(json.RawMessage) (any, error) {
		begun()
		<-release
		return map[string]any{}, nil
	})
	first := make(chan error, 1)
	go func() { first <- guest.Pause(t.Context()) }()
	<-acts
	// These are taken together, after the first was given up.
	ended := make(chan time.Time, 4)
	for range cap(ended) {
		go func() {
			if err := guest.Pause(t.Context()); err == nil {
				t.Error("the guest was paused by a QEMU that did not answer")
			}
			ended <- time.Now()
		}()
	}
	if err := <-first; err == nil {
		t.Error("the first pause succeeded by a QEMU that did not answer")
	}
	began := <-ended
	for range cap(ended) - 1 {
		if apart := (<-ended).Sub(began); apart >= concern.CommandTimeout {
			t.Errorf("a request was given up %v after another of the same turn", apart)
		}
	}
}

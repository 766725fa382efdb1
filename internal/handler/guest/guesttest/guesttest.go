// Package guesttest attaches guests with all their commands to models of QEMU, for the tests of package guest and those
// below it. It owns no rule, and no program links it.
package guesttest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/guest/runcontrol"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Patience is how long a test waits for an event that comes soon.
const Patience = 4 * time.Minute

// Clock is a clock that only a test moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Pass moves the clock.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Guest is a guest with all its commands, and with its reports to the owner.
type Guest struct {
	*guest.Guest
	runcontrol.Control
	handover.Source
	handover.Target
	diskcopy.Copies
	T     *testing.T
	Clock *Clock
	woken chan struct{}
}

// Disks are those of each guest's spec.
var Disks = []v1.Disk{{Name: "root"}, {Name: "data"}}

// Open attaches to a QEMU.
func Open(t *testing.T, qemu *qmptest.Server) *Guest {
	t.Helper()
	conn, ok := qemu.Dial().(*net.UnixConn)
	if !ok {
		t.Fatal("the monitor is no unix socket")
	}
	return Watch(t, conn)
}

// Watch attaches to the QEMU whose monitor is at the other end.
func Watch(t *testing.T, conn *net.UnixConn) *Guest {
	t.Helper()
	w := &Guest{T: t, Clock: &Clock{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}, woken: make(chan struct{}, 1)}
	g, err := guest.Open(t.Context(), conn, guest.Env{
		OnEvent: func(qmp.Event) bool { return false }, Now: w.Clock.Now, Log: logr.Discard(),
		Wake: func() {
			select {
			case w.woken <- struct{}{}:
			default:
			}
		},
	}, Disks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	w.Guest, w.Control, w.Copies, w.Source, w.Target = g, runcontrol.Of(g), diskcopy.Of(g), handover.SourceOf(g), handover.TargetOf(g)
	return w
}

// Await refreshes whenever the owner is woken, until the facts are as wanted.
func (w *Guest) Await(what string, reached func(guest.Facts) bool) guest.Facts {
	w.T.Helper()
	for timeout := time.After(Patience); ; {
		w.Refresh(w.T.Context(), Disks)
		if f := w.Observe(); reached(f) {
			return f
		}
		select {
		case <-w.woken:
		case <-time.After(10 * time.Millisecond): // QEMU does not report progress
			w.Invalidate()
		case <-timeout:
			w.T.Fatalf("waited for %s in vain: %+v", what, w.Observe())
		}
	}
}

// In returns a condition for Await.
func In(state string) func(guest.Facts) bool {
	return func(f guest.Facts) bool { return f.RunState == state }
}

// InState returns a QEMU whose guest is in a run state.
func InState(t *testing.T, state string) *qmptest.Server {
	qemu := qmptest.New(t)
	qemu.SetRunState(state)
	return qemu
}

// Pause makes the request of a user.
func (w *Guest) Pause(ctx context.Context) error { return w.HandleRequest(ctx, power.Pause) }

// Unpause makes the request of a user.
func (w *Guest) Unpause(ctx context.Context) error { return w.HandleRequest(ctx, power.Unpause) }

// Reset makes the request of a user.
func (w *Guest) Reset(ctx context.Context) error { return w.HandleRequest(ctx, power.Reset) }

// Reboot makes the request of a user.
func (w *Guest) Reboot(ctx context.Context) error { return w.HandleRequest(ctx, power.Reboot) }

// RefusalOf returns the message of a Refusal; "" for success.
func RefusalOf(t *testing.T, err error) string {
	t.Helper()
	var refusal *power.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%v is no refusal", err)
	}
	if err == nil {
		return ""
	}
	return refusal.Message
}

package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// These tests use a model of QEMU's monitor (qmptest); conformance tests compare it with QEMU.

// QEMU is asked once which accelerator the guest has.
func TestWhatAGuestRunsWith(t *testing.T) {
	for name, kvm := range map[string]bool{"with KVM": true, "emulated": false} {
		qemu := qmptest.New(t)
		asked := 0
		qemu.Override("query-kvm", func(json.RawMessage) (any, error) {
			asked++
			return map[string]bool{"present": true, "enabled": kvm}, nil
		})
		w := guesttest.Open(t, qemu)
		qemu.EnterRunState(runstate.Running, "RESUME")
		if f := w.Await("the guest to run", guesttest.In(runstate.Running)); f.KVM != kvm || asked != 1 {
			t.Errorf("%s: KVM %v, asked for %d times", name, f.KVM, asked)
		}
	}
}

// TestAQEMUThatAGuestMovesTo: before the guest's arrival its state is unknown, and the arrival shows that it has run.
func TestAQEMUThatAGuestMovesTo(t *testing.T) {
	source, target := guesttest.InState(t, runstate.Running), guesttest.InState(t, runstate.InMigrate)
	target.AddObject(machine.MarkerType, machine.WaitMarker)
	from, to := guesttest.Open(t, source), guesttest.Open(t, target)
	if f := to.Observe(); f.RunState != runstate.InMigrate || f.Halted || f.After <= 0 {
		t.Errorf("of the target is known %+v", f)
	}
	if !target.HasObject(machine.WaitMarker) {
		t.Error("a marker was removed before it was known what it means")
	}
	if f := from.Observe(); f.RunState != runstate.Running {
		t.Errorf("of the source is known %+v", f)
	}
	source.EnterRunState("postmigrate", "STOP")
	target.EnterRunState(runstate.Running, "RESUME")
	from.Await("a guest that has moved", guesttest.In("postmigrate"))
	to.Await("a guest that has arrived", guesttest.In(runstate.Running))
	if target.HasObject(machine.WaitMarker) {
		t.Error("the marker of a guest that runs is still there")
	}
	if got := guesttest.RefusalOf(t, from.Unpause(t.Context())); !strings.Contains(got, "does not continue here") {
		t.Errorf("continuing the source: %q", got)
	}
}

func TestQEMUIsAskedOnlyAfterAnEvent(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	w := guesttest.Open(t, qemu)
	before := len(qemu.Commands())
	w.Refresh(t.Context(), guesttest.Disks)
	if got := qemu.Commands()[before:]; len(got) > 0 {
		t.Errorf("without an event QEMU was asked %v", got)
	}
	qemu.EnterRunState("watchdog", "WATCHDOG")
	w.Await("the watchdog", guesttest.In("watchdog"))
	// A state that QEMU leaves without an event is queried repeatedly.
	qemu.EnterRunState("save-vm", "STOP")
	f := w.Await("a snapshot", guesttest.In("save-vm"))
	if f.After != time.Second {
		t.Errorf("QEMU is asked again after %v, want %v", f.After, time.Second)
	}
	qemu.SetRunState(runstate.Running)
	w.Await("the end of the snapshot", guesttest.In(runstate.Running))
}

func TestAQEMUThatHangsOrEnds(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	w := guesttest.Open(t, qemu)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	qemu.Override("query-status", func(json.RawMessage) (any, error) { cancel(); <-release; return nil, errors.New("late") })
	if err := w.Pause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("pausing a QEMU that hangs: %v", err)
	}
	close(release)
	if !w.Alive() {
		t.Error("a QEMU that hung counts as dead")
	}
	qemu.Exit()
	select {
	case <-w.Done():
	case <-time.After(guesttest.Patience):
		t.Fatal("nobody hears of QEMU's end")
	}
	if w.Alive() {
		t.Error("it counts as alive")
	}
	if err := w.Pause(t.Context()); err == nil {
		t.Error("it was paused")
	}
	w.Refresh(t.Context(), guesttest.Disks)
	if f := w.Observe(); f.RunState != runstate.Running {
		t.Errorf("the last that is known is %+v", f)
	}
}

// A QEMU that waits for its target answers nothing else.
func TestAQEMUThatDoesNotAnswerIsSilent(t *testing.T) {
	source := qmptest.New(t)
	source.SetRunState(runstate.Running)
	g := guesttest.Open(t, source)
	answer := make(chan struct{})
	source.Override("query-status", func(json.RawMessage) (any, error) {
		<-answer
		return nil, &qmp.Error{Class: "GenericError", Desc: "it is too late"}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	g.Invalidate()
	g.Refresh(ctx, nil)
	if !g.Observe().Silent {
		t.Error("it is not silent")
	}
	source.Override("query-status", nil)
	close(answer)
	g.Invalidate()
	g.Refresh(t.Context(), nil)
	if g.Observe().Silent {
		t.Error("it is silent when it answers again")
	}
}

// The event that begins a handover is read with these queries, which others would delay.
func TestAGuestIsNotMeasuredWhileAnEventIsRead(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	g := guesttest.Open(t, qemu)
	asked, answer := make(chan struct{}), make(chan struct{})
	qemu.Override("query-status", func(json.RawMessage) (any, error) {
		close(asked)
		<-answer
		return map[string]string{"status": runstate.Running}, nil
	})
	g.Invalidate()
	var reading sync.WaitGroup
	reading.Go(func() { g.Refresh(t.Context(), guesttest.Disks) })
	<-asked
	if g.Measurable() {
		t.Error("it is measured before QEMU has answered")
	}
	close(answer)
	reading.Wait()
	if !g.Measurable() {
		t.Error("it is not measured afterwards")
	}
}

// Nobody else may notice when a QEMU that hung goes on.
func TestASilentQEMUIsAskedAgainInAMinute(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	g := guesttest.Open(t, qemu)
	g.Invalidate()
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	g.Refresh(ended, guesttest.Disks)
	if f := g.Observe(); !f.Silent || f.After != time.Minute {
		t.Errorf("silent %v, it is asked again after %v, want %v", f.Silent, f.After, time.Minute)
	}
	before := len(qemu.Commands())
	g.Clock.Pass(59 * time.Second)
	g.Refresh(t.Context(), guesttest.Disks)
	if n := len(qemu.Commands()) - before; n != 0 || g.Measurable() {
		t.Errorf("within a minute it is asked %d times", n)
	}
	g.Clock.Pass(time.Second)
	g.Refresh(t.Context(), guesttest.Disks)
	if f := g.Observe(); f.Silent || f.After != 0 || !g.Measurable() {
		t.Errorf("it is silent when it answers again: %+v", f)
	}
}

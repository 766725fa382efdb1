package runcontrol_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func TestAGuestIsPausedAndUnpaused(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	w := guesttest.Open(t, qemu)
	for _, s := range []struct {
		verb          func(context.Context) error
		refusal, then string
	}{
		{w.Unpause, "VMI is not paused", runstate.Running},
		{w.Pause, "", "paused"},
		{w.Pause, "VMI is already paused", "paused"},
		{w.Reset, "", runstate.Prelaunch},
		{w.Pause, "VMI is already paused", runstate.Prelaunch},
		{w.Unpause, "", runstate.Running},
		{w.Reset, "", runstate.Running},
	} {
		if got := guesttest.RefusalOf(t, s.verb(t.Context())); got != s.refusal {
			t.Fatalf("a guest that is %s: %q, want %q", qemu.RunState(), got, s.refusal)
		}
		w.Await("run state "+s.then, guesttest.In(s.then))
	}
}

// TestVerbsInEachRunState checks which verbs work in each run state of the table and in an unknown one. No event has
// reported the state.
func TestVerbsInEachRunState(t *testing.T) {
	for _, state := range append(runstate.All(), runstate.Of("hibernating")) {
		check := func(name string, do func(*guesttest.Guest, context.Context) error, follows bool, message string) {
			t.Helper()
			got := guesttest.RefusalOf(t, do(guesttest.Open(t, guesttest.InState(t, state.Name)), t.Context()))
			if (got == "") != follows || !follows && got != message {
				t.Errorf("%s in %s: %q; want it to be followed: %v, or else %q", name, state.Name, got, follows, message)
			}
		}
		running, waits := state.Outlook == runstate.Runs, state.Outlook == runstate.Waits
		pause := "VMI cannot be paused: " + state.Message
		if state.Paused {
			pause = "VMI is already paused"
		}
		unpause := "VMI cannot be unpaused: " + state.Message
		if running {
			unpause = "VMI is not paused"
		}
		check("pause", func(w *guesttest.Guest, ctx context.Context) error { return w.Pause(ctx) }, running || state.Name == runstate.IOError, pause)
		check("unpause", func(w *guesttest.Guest, ctx context.Context) error { return w.Unpause(ctx) }, waits, unpause)
		check("reset", func(w *guesttest.Guest, ctx context.Context) error { return w.Reset(ctx) }, running || waits, "VMI cannot be reset: "+state.Message)
		reboot := "VMI cannot be rebooted: " + state.Message
		if state.Paused {
			reboot = "VMI is paused"
		}
		check("reboot", func(w *guesttest.Guest, ctx context.Context) error { return w.Reboot(ctx) }, running, reboot)
		check("pressing keys", func(w *guesttest.Guest, ctx context.Context) error { return w.HandleRequest(ctx, power.PressKeys) }, running, reboot)
	}
}

func TestAnIOErrorStopsAGuest(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	qemu.AddDisk(machine.DiskID("data"), 1<<20)
	w := guesttest.Open(t, qemu)
	qemu.FailDisk(machine.DiskID("data"), "nospace")
	f := w.Await("an I/O error", guesttest.In(runstate.IOError))
	if want := []vmihandler.FailedDisk{{Volume: "data", Full: true}}; !f.Stalled || f.Resume || f.After <= 0 || !slices.Equal(f.FailedDisks, want) {
		t.Errorf("known is %+v, want the failed disks %v and when to resume", f, want)
	}
	// The guest is resumed when the delay is over, and fails again at once.
	w.Clock.Pass(f.After)
	if f = w.Observe(); !f.Resume {
		t.Fatalf("the guest is not to be resumed: %+v", f)
	}
	if err := w.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	qemu.FailDisk(machine.DiskID("data"), "nospace")
	f = w.Await("another I/O error", func(f guest.Facts) bool { return f.RunState == runstate.IOError && f.Attempts == 1 })
	if f.Resume || !f.Stalled {
		t.Errorf("known is %+v", f)
	}
	if err := w.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Await("a guest that runs", guesttest.In(runstate.Running))
	// The error counts as over when the guest has run for a while.
	if f = w.Observe(); !f.Stalled || len(f.FailedDisks) != 1 {
		t.Errorf("a guest that has just been resumed: %+v", f)
	}
	w.Clock.Pass(time.Minute)
	if f = w.Observe(); f.Stalled || f.FailedDisks != nil {
		t.Errorf("a guest that has run for a while: %+v", f)
	}
}

// TestAPauseBesidesAnIOError: the pause keeps the guest stopped, and the next virt-handler knows it.
func TestAPauseBesidesAnIOError(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	w := guesttest.Open(t, qemu)
	qemu.FailDisk(qmptest.RootDisk, "failed")
	w.Await("an I/O error", guesttest.In(runstate.IOError))
	if err := w.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Await("a pause besides", func(f guest.Facts) bool { return f.PausedByUser })
	w.Clock.Pass(time.Hour)
	if f := w.Observe(); f.Resume || !qemu.HasObject(machine.PauseMarker) {
		t.Errorf("a guest that its user has paused: %+v", f)
	}
	if err := w.Resume(t.Context()); err != nil || qemu.RunState() != runstate.IOError {
		t.Errorf("it was resumed all the same: %v, %s", err, qemu.RunState())
	}
	if next := guesttest.Open(t, qemu); !next.Observe().PausedByUser {
		t.Errorf("the next virt-handler knows %+v", next.Observe())
	}
	if err := w.Unpause(t.Context()); err != nil || qemu.HasObject(machine.PauseMarker) {
		t.Errorf("unpausing it: %v; its marker is there: %v", err, qemu.HasObject(machine.PauseMarker))
	}
	w.Await("a guest that runs", func(f guest.Facts) bool { return f.RunState == runstate.Running && !f.PausedByUser })
}

// TestAnErrorIsFasterThanAPause: the guest's disk, or QEMU itself, fails just before the guest is paused.
func TestAnErrorIsFasterThanAPause(t *testing.T) {
	for state, want := range map[string]string{
		runstate.IOError: "",
		"internal-error": "VMI cannot be paused: " + runstate.Of("internal-error").Message,
		"watchdog":       "VMI is already paused",
	} {
		qemu := guesttest.InState(t, runstate.Running)
		w := guesttest.Open(t, qemu)
		qemu.Override("stop", func(json.RawMessage) (any, error) {
			qemu.SetRunState(state)
			return nil, nil
		})
		if got := guesttest.RefusalOf(t, w.Pause(t.Context())); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
		if marked := qemu.HasObject(machine.PauseMarker); marked != (state == runstate.IOError) {
			t.Errorf("%s: QEMU keeps the pause: %v", state, marked)
		}
	}
}

func TestAResetGetsAGuestAwayFromItsDisksError(t *testing.T) {
	qemu := guesttest.InState(t, runstate.IOError)
	if err := guesttest.Open(t, qemu).Reset(t.Context()); err != nil || qemu.RunState() != runstate.Running {
		t.Errorf("%v; the guest is %s", err, qemu.RunState())
	}
	qemu = guesttest.InState(t, runstate.IOError)
	qemu.AddObject(machine.MarkerType, machine.PauseMarker)
	if err := guesttest.Open(t, qemu).Reset(t.Context()); err != nil || qemu.RunState() != runstate.Prelaunch {
		t.Errorf("a guest that its user has paused: %v; it is %s", err, qemu.RunState())
	}
}

// halted returns a QEMU that waits for volumes before it runs its CPUs.
func halted(t *testing.T, paused bool) *qmptest.Server {
	qemu := qmptest.New(t)
	qemu.AddObject(machine.MarkerType, machine.WaitMarker)
	if paused {
		qemu.AddObject(machine.MarkerType, machine.PauseMarker)
	}
	return qemu
}

func TestAHaltedGuestIsStarted(t *testing.T) {
	for _, paused := range []bool{false, true} {
		qemu := halted(t, paused)
		w := guesttest.Open(t, qemu)
		if f := w.Observe(); !f.Halted || f.PausedByUser != paused {
			t.Fatalf("known is %+v", f)
		}
		before := len(qemu.Commands())
		started, err := w.Start(t.Context(), []machine.BootIndex{{Device: qmptest.RootDisk, Index: -1}, {Device: qmptest.RootDisk, Index: 2}})
		if err != nil || !started {
			t.Fatalf("%v, %v", started, err)
		}
		want := []string{"qom-list", "query-migrate", "query-jobs", "query-status", "qom-set", "qom-set", "system_reset", "cont", "object-del"}
		state := runstate.Running
		if paused {
			want, state = slices.Delete(want, 7, 8), runstate.Prelaunch
		}
		if got := qemu.Commands()[before:]; !slices.Equal(got, want) {
			t.Errorf("paused %v: QEMU was told %v, want %v", paused, got, want)
		}
		if qemu.RunState() != state || qemu.HasObject(machine.WaitMarker) || qemu.BootIndex(qmptest.RootDisk) != 2 {
			t.Errorf("paused %v: the guest is %s, its marker is there: %v, its place in the boot order is %d",
				paused, qemu.RunState(), qemu.HasObject(machine.WaitMarker), qemu.BootIndex(qmptest.RootDisk))
		}
		w.Await("a guest that is not halted", func(f guest.Facts) bool { return !f.Halted && f.RunState == state })
		if started, err := w.Start(t.Context(), nil); err != nil || started {
			t.Errorf("it was started again: %v, %v", started, err)
		}
	}
}

func TestAUserPausesAHaltedGuest(t *testing.T) {
	qemu := halted(t, false)
	w := guesttest.Open(t, qemu)
	for _, s := range []struct {
		verb    func(context.Context) error
		refusal string
		paused  bool
	}{
		{w.Unpause, "VMI is not paused: it waits for volumes before it starts", false},
		{w.Pause, "", true},
		{w.Pause, "VMI is already paused", true},
		{w.Unpause, "", false},
	} {
		if got := guesttest.RefusalOf(t, s.verb(t.Context())); got != s.refusal {
			t.Errorf("%q, want %q", got, s.refusal)
		}
		w.Await("what the user wants", func(f guest.Facts) bool { return f.PausedByUser == s.paused && f.Halted })
	}
	if got := guesttest.RefusalOf(t, w.Reboot(t.Context())); got != "VMI cannot be rebooted: it waits for volumes before it starts" {
		t.Errorf("a reboot: %q", got)
	}
	if qemu.Executed("cont") > 0 {
		t.Error("the guest's CPUs were started")
	}
}

// TestTheMarkerOfAGuestThatHasRunIsRemoved: a virt-handler died after it had started the CPUs. The next one removes the
// marker before a verb brings the guest back to prelaunch.
func TestTheMarkerOfAGuestThatHasRunIsRemoved(t *testing.T) {
	qemu := halted(t, false)
	qemu.SetRunState("paused")
	w := guesttest.Open(t, qemu)
	if w.Observe().Halted || qemu.HasObject(machine.WaitMarker) {
		t.Errorf("known is %+v, the marker is there: %v", w.Observe(), qemu.HasObject(machine.WaitMarker))
	}
	qemu.AddObject(machine.MarkerType, machine.WaitMarker)
	if err := w.Reset(t.Context()); err != nil || qemu.HasObject(machine.WaitMarker) {
		t.Errorf("%v; the marker is there: %v", err, qemu.HasObject(machine.WaitMarker))
	}
	w.Await("a paused guest", func(f guest.Facts) bool { return f.RunState == runstate.Prelaunch && !f.Halted })
}

func TestKeysArePressed(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	if err := guesttest.Open(t, qemu).HandleRequest(t.Context(), power.PressKeys); err != nil || qemu.Executed("send-key") != 1 {
		t.Errorf("%v; QEMU was told %v", err, qemu.Commands())
	}
}

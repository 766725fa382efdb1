package handover_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// refusesToRun tries all verbs that could run a guest that does not belong to this QEMU.
func refusesToRun(w *guesttest.Guest, qemu *qmptest.Server) {
	w.T.Helper()
	for name, err := range map[string]error{"unpause": w.Unpause(w.T.Context()), "reset": w.Reset(w.T.Context())} {
		if guesttest.RefusalOf(w.T, err) == "" {
			w.T.Errorf("%s was done", name)
		}
	}
	started, err := w.Start(w.T.Context(), nil)
	if started || err != nil || w.Resume(w.T.Context()) != nil || qemu.Executed("cont") > 0 {
		w.T.Errorf("QEMU was told to run its guest: %v, %v", started, err)
	}
}

func checkSettings(t *testing.T, m *guesttest.Moving) {
	t.Helper()
	for name, want := range map[string]bool{"pause-before-switchover": true, "auto-converge": true, "late-block-activate": false, "return-path": true} {
		if m.Source.Capability(name) != want {
			t.Errorf("the source's capability %s is %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"pause-before-switchover": false, "late-block-activate": true, "return-path": true} {
		if m.Target.Capability(name) != want {
			t.Errorf("the target's capability %s is %v", name, !want)
		}
	}
	if bandwidth, downtime := m.Source.Parameter("max-bandwidth"), m.Source.Parameter("downtime-limit"); bandwidth != "1125899906842624" || downtime != "100" {
		t.Errorf("the parameters are %s and %s", bandwidth, downtime)
	}
}

func TestAGuestRunsBeforeQEMUHasAnswered(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	m.HandOver(t)
	ran := make(chan struct{})
	m.Target.Override("cont", func(json.RawMessage) (any, error) {
		m.Target.EnterRunState("running", "RESUME")
		select {
		case <-ran:
			return nil, nil
		case <-time.After(guesttest.Patience):
			return nil, errors.New("nobody was told that the guest runs")
		}
	})
	if err := m.To.Take(t.Context(), "m", nothing, func() { close(ran) }); err != nil {
		t.Fatal(err)
	}
	m.Target.Emit("RESUME", nil) // a later one concerns nobody
	m.To.Await("a guest that runs", guesttest.In(runstate.Running))
}

func TestAGuestThatQEMUDoesNotRunIsNotSaidToRun(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	m.HandOver(t)
	m.Target.Override("cont", func(json.RawMessage) (any, error) { return nil, errors.New("no") })
	err := m.To.Take(t.Context(), "m", nothing, func() { t.Error("the guest was said to run") })
	if err == nil {
		t.Error("a guest that QEMU does not run was taken")
	}
}

// nothing is the step between the mark and the run for most guests.
func nothing() error { return nil }

// TestAGuestRunsOnlyWhenWhatItLeavesIsRecorded: at the record the source can't continue any more, and the guest has not
// run yet.
func TestAGuestRunsOnlyWhenWhatItLeavesIsRecorded(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	m.HandOver(t)
	full := errors.New("no space left")
	err := m.To.Take(t.Context(), "m", func() error {
		if !m.Target.HasObject(machine.RanMarker("m")) || m.Target.Executed("cont") > 0 {
			t.Error("it is recorded before the mark, or after the guest has run")
		}
		return full
	}, func() { t.Error("the guest was said to run") })
	if !errors.Is(err, full) || m.Target.Executed("cont") > 0 {
		t.Fatalf("the guest ran although %v", err)
	}
	recorded := 0
	for range 2 {
		if err := m.To.Take(t.Context(), "m", func() error { recorded++; return nil }, func() {}); err != nil {
			t.Fatal(err)
		}
		m.To.Await("a guest that runs", guesttest.In(runstate.Running))
	}
	if recorded != 1 || m.Target.Executed("cont") != 1 {
		t.Errorf("it was recorded %d times, and the guest told to run %d times", recorded, m.Target.Executed("cont"))
	}
}

func TestAGuestMoves(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	f := m.From.Await("progress", func(f guest.Facts) bool { return f.Migration.Progress.Transferred == 1<<20 })
	if p := f.Migration.Progress; p.Total != 1<<20 || p.Remaining != 0 || p.Rate != 1e6 || f.After != time.Second || f.Migration.Begun != "m" {
		t.Errorf("while it is sent: %+v", f)
	}
	checkSettings(t, m)
	if !f.Stopped.IsZero() {
		t.Errorf("the guest is stopped since %v while it is sent", f.Stopped)
	}
	m.HandOver(t)
	m.From.Await("since when the guest is stopped", func(f guest.Facts) bool { return !f.Stopped.IsZero() })
	refusesToRun(m.From, m.Source)
	refusesToRun(m.To, m.Target)
	if err := m.To.Take(t.Context(), "another", nothing, func() {}); err == nil {
		t.Error("a guest was taken that another migration has brought")
	}
	for range 2 {
		ran := 0
		if err := m.To.Take(t.Context(), "m", nothing, func() { ran++ }); err != nil || ran != 1 {
			t.Fatalf("a guest that has arrived was said to run %d times: %v", ran, err)
		}
	}
	m.To.Await("a guest that runs", guesttest.In(runstate.Running))
	if n := m.Target.Executed("cont"); n != 1 || !m.Target.HasObject(machine.RanMarker("m")) {
		t.Errorf("the target was told to run %d times", n)
	}
	if n := m.Target.Executed("announce-self"); n != 0 {
		t.Errorf("the guest that has arrived was announced %d times before its source has heard of it", n)
	}
	m.To.Announce(t.Context())
	if n := m.Target.Executed("announce-self"); n != 1 {
		t.Errorf("the guest that has arrived was announced %d times", n)
	}
}

// TestAMigrationThatEndsEarlyLeavesTheGuestAsItWas: in one case a disk error has stopped the guest meanwhile, and the
// guest must be resumed.
func TestAMigrationThatEndsEarlyLeavesTheGuestAsItWas(t *testing.T) {
	for name, fails := range map[string]bool{"a guest that runs": false, "a guest whose disk fails": true} {
		m := guesttest.NewMoving(t)
		m.Begin(t)
		if fails {
			m.Source.FailDisk(qmptest.RootDisk, "failed")
		}
		m.Release()
		m.From.Await("the switchover", guesttest.At(migrationstatus.PreSwitchover))
		if err := m.From.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := m.From.Await("the end", guesttest.At(migrationstatus.Canceled))
		<-m.To.Done()
		if !fails {
			m.From.Await(name, guesttest.In(runstate.Running))
			continue
		}
		m.From.Await(name, func(f guest.Facts) bool { return f.RunState == runstate.IOError && f.Stalled })
		if err := m.From.Resume(t.Context()); err != nil || m.Source.RunState() != runstate.Running {
			t.Errorf("%s: %v, the guest is %s: %+v", name, err, m.Source.RunState(), f)
		}
	}
}

func TestASourceKeepsAGuestThatHasNotRunElsewhere(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	if err := m.From.Reclaim(t.Context(), "m"); err == nil {
		t.Error("a guest was taken back that was not sent")
	}
	m.HandOver(t)
	if err := m.From.Reclaim(t.Context(), "another"); err == nil {
		t.Error("it was taken back for another migration")
	}
	m.Target.Exit()
	if err := m.From.Reclaim(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if n := m.Source.Executed("announce-self"); n != 1 {
		t.Errorf("the guest that goes on here was announced %d times", n)
	}
	f := m.From.Await("a guest that runs", func(f guest.Facts) bool { return f.RunState == runstate.Running && f.Stopped.IsZero() })
	if f.Migration.Status != migrationstatus.None || f.Migration.UnderWay() {
		t.Errorf("it is %+v", f)
	}
}

func TestAPauseIsRefusedDuringAMigration(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	if why := guesttest.RefusalOf(t, m.From.Pause(t.Context())); why != "VMI cannot be paused while it is migrated" {
		t.Errorf("the pause says %q", why)
	}
	m.Release()
	m.From.Await("the switchover", guesttest.At(migrationstatus.PreSwitchover))
	if why := guesttest.RefusalOf(t, m.From.Pause(t.Context())); !strings.Contains(why, "sent to another node") {
		t.Errorf("the pause says %q", why)
	}
}

func TestASecondMigrationReplacesTheFirstsMarkers(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	for _, marker := range []string{machine.BegunMarker("old"), machine.PauseMarker} {
		qemu.AddObject(machine.MarkerType, marker)
	}
	w := guesttest.Open(t, qemu)
	if err := w.Begin(t.Context(), handover.Begin{Migration: "new", Socket: filepath.Join(t.TempDir(), "none")}); err != nil {
		t.Fatal(err)
	}
	for marker, want := range map[string]bool{
		machine.BegunMarker("old"): false, machine.PauseMarker: true, machine.BegunMarker("new"): true,
	} {
		if qemu.HasObject(marker) != want {
			t.Errorf("the marker %s is there: %v", marker, !want)
		}
	}
	f := w.Await("a migration that reaches nobody", guesttest.At(migrationstatus.Failed))
	if f.Migration.Failure == "" {
		t.Errorf("it says nothing of why: %+v", f)
	}
}

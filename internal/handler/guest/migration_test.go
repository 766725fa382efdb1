package guest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// moving is a migration between two QEMUs, each with a Guest attached.
type moving struct {
	from, to       *watched
	source, target *qmptest.Server
	socket         string
	transport      switchover.Transport
	// release lets the transfer of memory complete.
	release func()
}

// newMoving starts both. The migration stays active until release is called.
func newMoving(t *testing.T) *moving {
	t.Helper()
	dir, err := os.MkdirTemp("", "moving") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &moving{source: inState(t, runstate.Running), target: qmptest.NewIncoming(t), socket: filepath.Join(dir, "m.sock")}
	m.target.AddObject(machine.MarkerType, machine.IncomingMarker("m"))
	m.release = m.source.HoldMigration()
	m.from, m.to = open(t, m.source), open(t, m.target)
	return m
}

func (m *moving) begin(t *testing.T) {
	t.Helper()
	for range 2 { // a repetition does no harm
		if taken, err := m.to.Listen(t.Context(), m.socket, m.transport); err != nil || taken != m.transport {
			t.Fatalf("QEMU takes its guest by %+v: %v", taken, err)
		}
	}
	if err := m.from.Begin(t.Context(), Begin{Migration: "m", Socket: m.socket, AutoConverge: true, Downtime: 100 * time.Millisecond, Transport: m.transport}); err != nil {
		t.Fatal(err)
	}
}

func at(status migrationstatus.Status) func(Facts) bool {
	return func(f Facts) bool { return f.Migration.Status == status }
}

// handOver brings the guest to the target, which does not run it yet.
func (m *moving) handOver(t *testing.T) {
	t.Helper()
	m.release()
	m.from.await("the switchover", at(migrationstatus.PreSwitchover))
	if err := m.from.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := m.from.await("the end at the source", at(migrationstatus.Completed)); !f.Migration.hasSentGuest() || f.RunState != runstate.PostMigrate {
		t.Errorf("the source is %+v", f)
	}
	if f := m.to.await("the end at the target", at(migrationstatus.Completed)); !f.Migration.hasArrived() || f.Migration.Ran || f.RunState != runstate.InMigrate {
		t.Errorf("the target is %+v", f)
	}
}

// refusesToRun tries all verbs that could run a guest that does not belong to this QEMU.
func refusesToRun(w *watched, qemu *qmptest.Server) {
	w.t.Helper()
	for name, err := range map[string]error{"unpause": w.Unpause(w.t.Context()), "reset": w.Reset(w.t.Context())} {
		if refusalOf(w.t, err) == "" {
			w.t.Errorf("%s was done", name)
		}
	}
	started, err := w.Start(w.t.Context(), nil)
	if started || err != nil || w.Resume(w.t.Context()) != nil || qemu.Executed("cont") > 0 {
		w.t.Errorf("QEMU was told to run its guest: %v, %v", started, err)
	}
}

func (m *moving) checkSettings(t *testing.T) {
	t.Helper()
	for name, want := range map[string]bool{"pause-before-switchover": true, "auto-converge": true, "late-block-activate": false, "return-path": true} {
		if m.source.Capability(name) != want {
			t.Errorf("the source's capability %s is %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"pause-before-switchover": false, "late-block-activate": true, "return-path": true} {
		if m.target.Capability(name) != want {
			t.Errorf("the target's capability %s is %v", name, !want)
		}
	}
	if bandwidth, downtime := m.source.Parameter("max-bandwidth"), m.source.Parameter("downtime-limit"); bandwidth != "1125899906842624" || downtime != "100" {
		t.Errorf("the parameters are %s and %s", bandwidth, downtime)
	}
}

func TestAGuestRunsBeforeQEMUHasAnswered(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	m.handOver(t)
	ran := make(chan struct{})
	m.target.Override("cont", func(json.RawMessage) (any, error) {
		m.target.EnterRunState("running", "RESUME")
		select {
		case <-ran:
			return nil, nil
		case <-time.After(patience):
			return nil, errors.New("nobody was told that the guest runs")
		}
	})
	if err := m.to.Take(t.Context(), "m", nothing, func() { close(ran) }); err != nil {
		t.Fatal(err)
	}
	m.target.Emit("RESUME", nil) // a later one concerns nobody
	m.to.await("a guest that runs", in(runstate.Running))
}

func TestAGuestThatQEMUDoesNotRunIsNotSaidToRun(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	m.handOver(t)
	m.target.Override("cont", func(json.RawMessage) (any, error) { return nil, errors.New("no") })
	err := m.to.Take(t.Context(), "m", nothing, func() { t.Error("the guest was said to run") })
	if err == nil {
		t.Error("a guest that QEMU does not run was taken")
	}
}

// nothing is the step between the mark and the run for most guests.
func nothing() error { return nil }

// TestAGuestRunsOnlyWhenWhatItLeavesIsRecorded: at the record the source can't continue any more, and the guest has not
// run yet.
func TestAGuestRunsOnlyWhenWhatItLeavesIsRecorded(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	m.handOver(t)
	full := errors.New("no space left")
	err := m.to.Take(t.Context(), "m", func() error {
		if !m.target.HasObject(machine.RanMarker("m")) || m.target.Executed("cont") > 0 {
			t.Error("it is recorded before the mark, or after the guest has run")
		}
		return full
	}, func() { t.Error("the guest was said to run") })
	if !errors.Is(err, full) || m.target.Executed("cont") > 0 {
		t.Fatalf("the guest ran although %v", err)
	}
	recorded := 0
	for range 2 {
		if err := m.to.Take(t.Context(), "m", func() error { recorded++; return nil }, func() {}); err != nil {
			t.Fatal(err)
		}
		m.to.await("a guest that runs", in(runstate.Running))
	}
	if recorded != 1 || m.target.Executed("cont") != 1 {
		t.Errorf("it was recorded %d times, and the guest told to run %d times", recorded, m.target.Executed("cont"))
	}
}

func TestAGuestMoves(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	f := m.from.await("progress", func(f Facts) bool { return f.Migration.Progress.Transferred == 1<<20 })
	if p := f.Migration.Progress; p.Total != 1<<20 || p.Remaining != 0 || p.Rate != 1e6 || f.After != transientPause || f.Migration.Begun != "m" {
		t.Errorf("while it is sent: %+v", f)
	}
	m.checkSettings(t)
	if !f.Stopped.IsZero() {
		t.Errorf("the guest is stopped since %v while it is sent", f.Stopped)
	}
	m.handOver(t)
	m.from.await("since when the guest is stopped", func(f Facts) bool { return !f.Stopped.IsZero() })
	refusesToRun(m.from, m.source)
	refusesToRun(m.to, m.target)
	if err := m.to.Take(t.Context(), "another", nothing, func() {}); err == nil {
		t.Error("a guest was taken that another migration has brought")
	}
	for range 2 {
		ran := 0
		if err := m.to.Take(t.Context(), "m", nothing, func() { ran++ }); err != nil || ran != 1 {
			t.Fatalf("a guest that has arrived was said to run %d times: %v", ran, err)
		}
	}
	m.to.await("a guest that runs", in(runstate.Running))
	if n := m.target.Executed("cont"); n != 1 || !m.target.HasObject(machine.RanMarker("m")) {
		t.Errorf("the target was told to run %d times", n)
	}
	if n := m.target.Executed("announce-self"); n != 0 {
		t.Errorf("the guest that has arrived was announced %d times before its source has heard of it", n)
	}
	m.to.Announce(t.Context())
	if n := m.target.Executed("announce-self"); n != 1 {
		t.Errorf("the guest that has arrived was announced %d times", n)
	}
}

// TestAMigrationThatEndsEarlyLeavesTheGuestAsItWas: in one case a disk error has stopped the guest meanwhile, and the
// guest must be resumed.
func TestAMigrationThatEndsEarlyLeavesTheGuestAsItWas(t *testing.T) {
	for name, fails := range map[string]bool{"a guest that runs": false, "a guest whose disk fails": true} {
		m := newMoving(t)
		m.begin(t)
		if fails {
			m.source.FailDisk(qmptest.RootDisk, "failed")
		}
		m.release()
		m.from.await("the switchover", at(migrationstatus.PreSwitchover))
		if err := m.from.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := m.from.await("the end", at(migrationstatus.Canceled))
		<-m.to.Done()
		if !fails {
			m.from.await(name, in(runstate.Running))
			continue
		}
		m.from.await(name, func(f Facts) bool { return f.RunState == runstate.IOError && f.Stalled })
		if err := m.from.Resume(t.Context()); err != nil || m.source.RunState() != runstate.Running {
			t.Errorf("%s: %v, the guest is %s: %+v", name, err, m.source.RunState(), f)
		}
	}
}

func TestASourceKeepsAGuestThatHasNotRunElsewhere(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	if err := m.from.Reclaim(t.Context(), "m"); err == nil {
		t.Error("a guest was taken back that was not sent")
	}
	m.handOver(t)
	if err := m.from.Reclaim(t.Context(), "another"); err == nil {
		t.Error("it was taken back for another migration")
	}
	m.target.Exit()
	if err := m.from.Reclaim(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if n := m.source.Executed("announce-self"); n != 1 {
		t.Errorf("the guest that goes on here was announced %d times", n)
	}
	f := m.from.await("a guest that runs", func(f Facts) bool { return f.RunState == runstate.Running && f.Stopped.IsZero() })
	if f.Migration.Status != migrationstatus.None || f.Migration.UnderWay() {
		t.Errorf("it is %+v", f)
	}
}

func TestAPauseIsRefusedDuringAMigration(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	if why := refusalOf(t, m.from.Pause(t.Context())); why != "VMI cannot be paused while it is migrated" {
		t.Errorf("the pause says %q", why)
	}
	m.release()
	m.from.await("the switchover", at(migrationstatus.PreSwitchover))
	if why := refusalOf(t, m.from.Pause(t.Context())); !strings.Contains(why, "sent to another node") {
		t.Errorf("the pause says %q", why)
	}
}

func TestASecondMigrationReplacesTheFirstsMarkers(t *testing.T) {
	qemu := inState(t, runstate.Running)
	for _, marker := range []string{machine.BegunMarker("old"), machine.PauseMarker} {
		qemu.AddObject(machine.MarkerType, marker)
	}
	w := open(t, qemu)
	if err := w.Begin(t.Context(), Begin{Migration: "new", Socket: filepath.Join(t.TempDir(), "none")}); err != nil {
		t.Fatal(err)
	}
	for marker, want := range map[string]bool{
		machine.BegunMarker("old"): false, machine.PauseMarker: true, machine.BegunMarker("new"): true,
	} {
		if qemu.HasObject(marker) != want {
			t.Errorf("the marker %s is there: %v", marker, !want)
		}
	}
	f := w.await("a migration that reaches nobody", at(migrationstatus.Failed))
	if f.Migration.Failure == "" {
		t.Errorf("it says nothing of why: %+v", f)
	}
}

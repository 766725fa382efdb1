package handover_test

import (
	"testing"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// converge begins a migration and stops the guest for it.
func converge(t *testing.T, m *guesttest.Moving) {
	t.Helper()
	m.Begin(t)
	m.From.Await("memory that is sent", guesttest.At(migrationstatus.Active))
	for range 2 { // a repetition does no harm
		if err := m.From.StopToConverge(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	}
	f := m.From.Await("a guest that is stopped", guesttest.In(runstate.PausedToMigrate))
	if f.Resume || f.PausedByUser || !m.Source.HasObject(machine.PausedMarker("m")) {
		t.Errorf("while it is sent: %+v", f)
	}
}

func TestAGuestThatIsStoppedForItsMigrationRunsAtTheTarget(t *testing.T) {
	m := guesttest.NewMoving(t)
	converge(t, m)
	for name, err := range map[string]error{"unpause": m.From.Unpause(t.Context()), "pause": m.From.Pause(t.Context())} {
		if guesttest.RefusalOf(t, err) == "" {
			t.Errorf("%s was done", name)
		}
	}
	if err := m.From.Resume(t.Context()); err != nil || m.Source.Executed("cont") > 0 {
		t.Errorf("it was resumed: %v", err)
	}
	m.HandOver(t)
	refusesToRun(m.From, m.Source)
	if err := m.To.Take(t.Context(), "m", nothing, func() {}); err != nil {
		t.Fatal(err)
	}
	m.To.Await("a guest that runs", guesttest.In(runstate.Running))
}

// TestAGuestThatWasStoppedForItsMigrationGoesOn: if the migration fails, the guest continues, even if another
// virt-handler has stopped it.
func TestAGuestThatWasStoppedForItsMigrationGoesOn(t *testing.T) {
	for name, c := range map[string]struct{ switches, restarted bool }{
		"while memory is sent":                         {},
		"while memory is sent, and virt-handler ended": {restarted: true},
		"before the switchover":                        {switches: true},
		"before it, and virt-handler ended":            {switches: true, restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := guesttest.NewMoving(t)
			converge(t, m)
			if c.switches {
				m.Release()
				m.From.Await("the switchover", guesttest.At(migrationstatus.PreSwitchover))
			}
			if c.restarted {
				m.From.Close()
				m.From = guesttest.Open(t, m.Source)
			}
			if err := m.From.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.From.Await("a guest that is to go on", func(f guest.Facts) bool { return f.RunState == runstate.PausedToMigrate && f.Resume })
			if err := m.From.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			f := m.From.Await("a guest that runs", guesttest.In(runstate.Running))
			if f.Resume || f.Attempts > 0 || m.Source.HasObject(machine.PausedMarker("m")) {
				t.Errorf("the guest runs, and it is %+v", f)
			}
			if err := m.From.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f := m.From.Await("a guest that its user has paused", guesttest.In(runstate.Paused)); f.Resume {
				t.Errorf("a guest that its user has paused is to go on: %+v", f)
			}
		})
	}
}

func TestAGuestIsStoppedOnlyForAMigrationThatSendsIt(t *testing.T) {
	m := guesttest.NewMoving(t)
	stopped := func() bool {
		t.Helper()
		if err := m.From.StopToConverge(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		return m.Source.Executed("stop") > 0 || m.Source.HasObject(machine.PausedMarker("m"))
	}
	if stopped() {
		t.Error("it was stopped before the migration")
	}
	m.Begin(t)
	m.From.Await("memory that is sent", guesttest.At(migrationstatus.Active))
	if err := m.From.StopToConverge(t.Context(), "another"); err != nil || m.Source.Executed("stop") > 0 {
		t.Errorf("it was stopped for another migration: %v", err)
	}
	m.Release()
	m.From.Await("the switchover", guesttest.At(migrationstatus.PreSwitchover))
	if stopped() {
		t.Error("it was stopped during the switchover")
	}
}

// TestAMarkerWithoutAStop: a virt-handler has ended between the two.
func TestAMarkerWithoutAStop(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Begin(t)
	m.Source.AddObject(machine.MarkerType, machine.PausedMarker("m"))
	m.From.Await("a guest that runs and is sent", func(f guest.Facts) bool { return f.RunState == runstate.Running && f.Migration.Paused })
	if err := m.From.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the end", func(f guest.Facts) bool { return f.Migration.Status == migrationstatus.Canceled && !f.Migration.Paused })
	if m.Source.HasObject(machine.PausedMarker("m")) {
		t.Error("the marker is left")
	}
}

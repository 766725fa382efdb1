package guest

import (
	"testing"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// converge begins a migration and stops the guest for it.
func (m *moving) converge(t *testing.T) {
	t.Helper()
	m.begin(t)
	m.from.await("memory that is sent", at(migrationstatus.Active))
	for range 2 { // a repetition does no harm
		if err := m.from.Converge(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	}
	f := m.from.await("a guest that is stopped", in(runstate.PausedToMigrate))
	if f.Resume || f.PausedByUser || !m.source.HasObject(machine.PausedMarker("m")) {
		t.Errorf("while it is sent: %+v", f)
	}
}

func TestAGuestThatIsStoppedForItsMigrationRunsAtTheTarget(t *testing.T) {
	m := newMoving(t)
	m.converge(t)
	for name, err := range map[string]error{"unpause": m.from.Unpause(t.Context()), "pause": m.from.Pause(t.Context())} {
		if refusalOf(t, err) == "" {
			t.Errorf("%s was done", name)
		}
	}
	if err := m.from.Resume(t.Context()); err != nil || m.source.Executed("cont") > 0 {
		t.Errorf("it was resumed: %v", err)
	}
	m.handOver(t)
	refusesToRun(m.from, m.source)
	if err := m.to.Take(t.Context(), "m", nothing, func() {}); err != nil {
		t.Fatal(err)
	}
	m.to.await("a guest that runs", in(runstate.Running))
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
			m := newMoving(t)
			m.converge(t)
			if c.switches {
				m.release()
				m.from.await("the switchover", at(migrationstatus.PreSwitchover))
			}
			if c.restarted {
				m.from.Close()
				m.from = open(t, m.source)
			}
			if err := m.from.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.from.await("a guest that is to go on", func(f Facts) bool { return f.RunState == runstate.PausedToMigrate && f.Resume })
			if err := m.from.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			f := m.from.await("a guest that runs", in(runstate.Running))
			if f.Resume || f.Attempts > 0 || m.source.HasObject(machine.PausedMarker("m")) {
				t.Errorf("the guest runs, and it is %+v", f)
			}
			if err := m.from.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f := m.from.await("a guest that its user has paused", in(runstate.Paused)); f.Resume {
				t.Errorf("a guest that its user has paused is to go on: %+v", f)
			}
		})
	}
}

func TestAGuestIsStoppedOnlyForAMigrationThatSendsIt(t *testing.T) {
	m := newMoving(t)
	stopped := func() bool {
		t.Helper()
		if err := m.from.Converge(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		return m.source.Executed("stop") > 0 || m.source.HasObject(machine.PausedMarker("m"))
	}
	if stopped() {
		t.Error("it was stopped before the migration")
	}
	m.begin(t)
	m.from.await("memory that is sent", at(migrationstatus.Active))
	if err := m.from.Converge(t.Context(), "another"); err != nil || m.source.Executed("stop") > 0 {
		t.Errorf("it was stopped for another migration: %v", err)
	}
	m.release()
	m.from.await("the switchover", at(migrationstatus.PreSwitchover))
	if stopped() {
		t.Error("it was stopped during the switchover")
	}
}

// TestAMarkerWithoutAStop: a virt-handler has ended between the two.
func TestAMarkerWithoutAStop(t *testing.T) {
	m := newMoving(t)
	m.begin(t)
	m.source.AddObject(machine.MarkerType, machine.PausedMarker("m"))
	m.from.await("a guest that runs and is sent", func(f Facts) bool { return f.RunState == runstate.Running && f.Migration.Paused })
	if err := m.from.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.from.await("the end", func(f Facts) bool { return f.Migration.Status == migrationstatus.Canceled && !f.Migration.Paused })
	if m.source.HasObject(machine.PausedMarker("m")) {
		t.Error("the marker is left")
	}
}

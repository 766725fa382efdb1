package guest

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// newPostCopy returns a guest at its switchover, which moves before its memory.
func newPostCopy(t *testing.T) *moving {
	t.Helper()
	m := newMoving(t)
	m.transport = switchover.Transport{PostCopy: true}
	m.begin(t)
	m.from.await("memory to be sent", at(migrationstatus.Active))
	if err := m.from.SwitchToPostCopy(t.Context(), "another"); err != nil || m.source.Executed("migrate-start-postcopy") > 0 {
		t.Fatalf("another migration's guest moves: %v", err)
	}
	if err := m.from.SwitchToPostCopy(t.Context(), "m"); err != nil || !m.source.HasObject(machine.PausedMarker("m")) {
		t.Fatalf("the guest does not move, or is not marked: %v", err)
	}
	m.from.await("the switchover", at(migrationstatus.PreSwitchover))
	return m
}

func (m *moving) moves(t *testing.T) {
	t.Helper()
	if err := m.from.MarkLeft(t.Context(), "m"); err == nil {
		t.Error("a guest that is here was marked as one that has left")
	}
	if err := m.from.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.from.await("the first page", func(f Facts) bool {
		return f.Migration.Status == migrationstatus.PostCopyActive && f.Migration.PostCopyBytes > 0
	})
	if err := m.from.MarkLeft(t.Context(), "another"); err == nil {
		t.Error("another migration's guest was marked")
	}
	if err := m.from.MarkLeft(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	m.from.await("the mark", func(f Facts) bool { return f.Migration.Left })
	m.to.await("the guest", func(f Facts) bool {
		return f.Migration.hasArrived() && f.Migration.Status == migrationstatus.PostCopyActive
	})
	if err := m.to.Take(t.Context(), "m", nothing, func() {}); err != nil {
		t.Fatal(err)
	}
	m.to.await("a guest that runs", in(runstate.Running))
}

func TestAGuestMovesBeforeItsMemory(t *testing.T) {
	m := newPostCopy(t)
	release := m.source.HoldPostCopy()
	m.moves(t)
	for name, qemu := range map[string]interface{ Capability(string) bool }{"source": m.source, "target": m.target} {
		if !qemu.Capability("postcopy-ram") || qemu.Capability("multifd") {
			t.Errorf("the %s has no post-copy, or channels", name)
		}
	}
	if err := m.from.Cancel(t.Context()); err != nil || m.source.Executed("migrate_cancel") > 0 {
		t.Errorf("a guest that runs elsewhere was canceled: %v", err)
	}
	refusesToRun(m.from, m.source)
	release()
	m.from.await("the end", at(migrationstatus.Completed))
	m.to.await("the end", at(migrationstatus.Completed))
	if n := m.source.Executed("cont"); n > 0 {
		t.Errorf("the source was told to run %d times", n)
	}
}

// TestAGuestThatHasNotRunAtItsTargetIsTakenBack: it is then like a guest that has never left.
func TestAGuestThatHasNotRunAtItsTargetIsTakenBack(t *testing.T) {
	m := newPostCopy(t)
	if err := m.from.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.source.AddObject(machine.MarkerType, machine.LeftMarker("m"))
	m.from.await("the end", at(migrationstatus.Completed))
	m.target.Exit()
	if err := m.from.Reclaim(t.Context(), "m"); err != nil || m.source.HasObject(machine.LeftMarker("m")) {
		t.Errorf("it does not go on, or still counts as one that has left: %v", err)
	}
	m.from.await("a guest that runs", in(runstate.Running))
}

// TestAPostCopyIsCanceledUntilItsGuestIsMarked: nobody has run it at the target before that.
func TestAPostCopyIsCanceledUntilItsGuestIsMarked(t *testing.T) {
	for name, paged := range map[string]bool{"before its first page": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			m := newPostCopy(t)
			defer m.source.HoldPostCopy()()
			if paged {
				if err := m.from.Continue(t.Context()); err != nil {
					t.Fatal(err)
				}
				m.from.await("the first page", func(f Facts) bool { return f.Migration.PostCopyBytes > 0 })
			}
			if err := m.from.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.from.await("a guest that is to go on", func(f Facts) bool { return f.RunState == runstate.PausedToMigrate && f.Resume })
			if err := m.from.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.from.await("a guest that runs", in(runstate.Running))
		})
	}
}

// TestAPostCopyWhoseStreamHasBrokenIsNotCanceled: QEMU would never end it.
func TestAPostCopyWhoseStreamHasBrokenIsNotCanceled(t *testing.T) {
	m := newPostCopy(t)
	defer m.source.HoldPostCopy()()
	if err := m.from.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.to.await("the guest", func(f Facts) bool { return f.Migration.hasArrived() })
	m.source.CutMigration()
	m.from.await("the break", at(migrationstatus.PostCopyPaused))
	if err := m.from.Cancel(t.Context()); err != nil || m.source.Executed("migrate_cancel") > 0 {
		t.Errorf("it was canceled: %v", err)
	}
}

// TestAGuestWhosePostCopyIsGivenUpGoesOn: QEMU leaves it stopped.
func TestAGuestWhosePostCopyIsGivenUpGoesOn(t *testing.T) {
	m := newPostCopy(t)
	if err := m.from.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.from.await("a guest that is to go on", func(f Facts) bool { return f.RunState == runstate.PausedToMigrate && f.Resume })
	if err := m.from.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.from.await("a guest that runs", in(runstate.Running))
}

// TestAGuestThatHasLeftDoesNotGoOnWhateverQEMUSays: an error at the end of a post-copy makes it fail.
func TestAGuestThatHasLeftDoesNotGoOnWhateverQEMUSays(t *testing.T) {
	for _, marked := range []bool{false, true} {
		a := migrationOf(migrationInfo{Status: "failed"}, runstate.PostMigrate, map[string]bool{
			machine.BegunMarker("m"): true, machine.PausedMarker("m"): true, machine.LeftMarker("m"): marked,
		})
		want := runstate.PausedToMigrate
		if marked {
			want = runstate.PostMigrate
		}
		if got := guestRunState(a); got != want {
			t.Errorf("marked is %v: the guest is %s, want %s", marked, got, want)
		}
	}
}

func TestABrokenPostCopyGoesOn(t *testing.T) {
	m := newPostCopy(t)
	release := m.source.HoldPostCopy()
	m.moves(t)
	m.source.CutMigration()
	for _, w := range []*watched{m.from, m.to} {
		w.await("the break", at(migrationstatus.PostCopyPaused))
	}
	for _, migration := range []types.UID{"another", "m"} {
		if err := m.to.RecoverIncoming(t.Context(), migration, m.socket); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.from.Recover(t.Context(), "another", m.socket); err != nil || m.source.Executed("migrate") != 1 {
		t.Fatalf("another migration goes on: %v", err)
	}
	if err := m.from.Recover(t.Context(), "m", m.socket); err != nil {
		t.Fatal(err)
	}
	m.from.await("the rest to be sent", at(migrationstatus.PostCopyActive))
	if err := m.from.Recover(t.Context(), "m", m.socket); err != nil || m.source.Executed("migrate") != 2 || m.target.Executed("migrate-recover") != 1 {
		t.Errorf("what goes on is begun again: %v", err)
	}
	release()
	m.to.await("the end", at(migrationstatus.Completed))
	m.from.await("the end", at(migrationstatus.Completed))
}

// TestATargetWithoutUserfaultfdHasNoPostCopy: QEMU tries userfaultfd, and refuses.
func TestATargetWithoutUserfaultfdHasNoPostCopy(t *testing.T) {
	m := newMoving(t)
	m.target.RefusePostCopy()
	for range 2 {
		taken, err := m.to.Listen(t.Context(), m.socket, switchover.Transport{PostCopy: true, Channels: 4})
		if err != nil || taken != (switchover.Transport{Channels: 4}) {
			t.Errorf("QEMU takes its guest by %+v: %v", taken, err)
		}
	}
}

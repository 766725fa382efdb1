package handover_test

import (
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// newPostCopy returns a guest at its switchover, which moves before its memory.
func newPostCopy(t *testing.T) *guesttest.Moving {
	t.Helper()
	m := guesttest.NewMoving(t)
	m.Transport = switchover.Transport{PostCopy: true}
	m.Begin(t)
	m.From.Await("memory to be sent", guesttest.At(migrationstatus.Active))
	if told, err := m.From.SwitchToPostCopy(t.Context(), "another"); told || err != nil || m.Source.Executed("migrate-start-postcopy") > 0 {
		t.Fatalf("another migration's guest moves: %v", err)
	}
	if told, err := m.From.SwitchToPostCopy(t.Context(), "m"); !told || err != nil || !m.Source.HasObject(machine.PausedMarker("m")) {
		t.Fatalf("the guest does not move, or is not marked: %v", err)
	}
	m.From.Await("the switchover", guesttest.At(migrationstatus.PreSwitchover))
	return m
}

func moves(t *testing.T, m *guesttest.Moving) {
	t.Helper()
	if err := m.From.MarkLeft(t.Context(), "m"); err == nil {
		t.Error("a guest that is here was marked as one that has left")
	}
	if err := m.From.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the first page", func(f guest.Facts) bool {
		return f.Migration.Status == migrationstatus.PostCopyActive && f.Migration.PostCopyBytes > 0
	})
	if err := m.From.MarkLeft(t.Context(), "another"); err == nil {
		t.Error("another migration's guest was marked")
	}
	if err := m.From.MarkLeft(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the mark", func(f guest.Facts) bool { return f.Migration.Left })
	m.To.Await("the guest", func(f guest.Facts) bool {
		return f.Migration.HasArrived() && f.Migration.Status == migrationstatus.PostCopyActive
	})
	if err := m.To.Take(t.Context(), "m", nothing, func() {}); err != nil {
		t.Fatal(err)
	}
	m.To.Await("a guest that runs", guesttest.In(runstate.Running))
}

func TestAGuestMovesBeforeItsMemory(t *testing.T) {
	m := newPostCopy(t)
	release := m.Source.HoldPostCopy()
	moves(t, m)
	for name, qemu := range map[string]interface{ Capability(string) bool }{"source": m.Source, "target": m.Target} {
		if !qemu.Capability("postcopy-ram") || qemu.Capability("multifd") {
			t.Errorf("the %s has no post-copy, or channels", name)
		}
	}
	if err := m.From.Cancel(t.Context()); err != nil || m.Source.Executed("migrate_cancel") > 0 {
		t.Errorf("a guest that runs elsewhere was canceled: %v", err)
	}
	refusesToRun(m.From, m.Source)
	release()
	m.From.Await("the end", guesttest.At(migrationstatus.Completed))
	m.To.Await("the end", guesttest.At(migrationstatus.Completed))
	if n := m.Source.Executed("cont"); n > 0 {
		t.Errorf("the source was told to run %d times", n)
	}
}

// TestAGuestThatHasNotRunAtItsTargetIsTakenBack: it is then like a guest that has never left.
func TestAGuestThatHasNotRunAtItsTargetIsTakenBack(t *testing.T) {
	m := newPostCopy(t)
	if err := m.From.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Source.AddObject(machine.MarkerType, machine.LeftMarker("m"))
	m.From.Await("the end", guesttest.At(migrationstatus.Completed))
	m.Target.Exit()
	if err := m.From.Reclaim(t.Context(), "m"); err != nil || m.Source.HasObject(machine.LeftMarker("m")) {
		t.Errorf("it does not go on, or still counts as one that has left: %v", err)
	}
	m.From.Await("a guest that runs", guesttest.In(runstate.Running))
}

// TestTheRestOfAPostCopyIsSentUntilItsGuestIsMarked: QEMU refuses to cancel it.
func TestTheRestOfAPostCopyIsSentUntilItsGuestIsMarked(t *testing.T) {
	m := newPostCopy(t)
	defer m.Source.HoldPostCopy()()
	unlimited := func() bool { return m.Source.Parameter("max-postcopy-bandwidth") == strconv.Itoa(1<<40) }
	if sent, err := m.From.SendRest(t.Context(), "m"); sent || err != nil || unlimited() {
		t.Errorf("before the switchover: sent %v, %v", sent, err)
	}
	if err := m.From.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the first page", func(f guest.Facts) bool { return f.Migration.PostCopyBytes > 0 })
	if err := m.From.Cancel(t.Context()); err != nil || m.Source.Executed("migrate_cancel") > 0 {
		t.Errorf("it was canceled: %v", err)
	}
	if sent, err := m.From.SendRest(t.Context(), "another"); sent || err != nil || unlimited() {
		t.Errorf("another migration's rest: sent %v, %v", sent, err)
	}
	if sent, err := m.From.SendRest(t.Context(), "m"); !sent || err != nil || !unlimited() {
		t.Errorf("sent %v, %v", sent, err)
	}
	m.Source.AddObject(machine.MarkerType, machine.LeftMarker("m"))
	if sent, err := m.From.SendRest(t.Context(), "m"); sent || err != nil {
		t.Errorf("the rest of a guest that has left: sent %v, %v", sent, err)
	}
}

// TestAGuestIsStoppedBeforeItMoves: QEMU 10 resumes one that was not, if its post-copy fails at its end.
func TestAGuestIsStoppedBeforeItMoves(t *testing.T) {
	m := newPostCopy(t)
	told := m.Source.Commands()
	stop, move := slices.Index(told, "stop"), slices.Index(told, "migrate-start-postcopy")
	if stop < 0 || stop > move {
		t.Errorf("the source was told %q", told)
	}
}

// TestAPostCopyWhoseStreamHasBrokenIsNotCanceled: QEMU would never end it.
func TestAPostCopyWhoseStreamHasBrokenIsNotCanceled(t *testing.T) {
	m := newPostCopy(t)
	defer m.Source.HoldPostCopy()()
	if err := m.From.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.To.Await("the guest", func(f guest.Facts) bool { return f.Migration.HasArrived() })
	m.Source.CutMigration()
	m.From.Await("the break", guesttest.At(migrationstatus.PostCopyPaused))
	if err := m.From.Cancel(t.Context()); err != nil || m.Source.Executed("migrate_cancel") > 0 {
		t.Errorf("it was canceled: %v", err)
	}
}

// TestAGuestWhosePostCopyIsGivenUpGoesOn: QEMU leaves it stopped.
func TestAGuestWhosePostCopyIsGivenUpGoesOn(t *testing.T) {
	m := newPostCopy(t)
	if err := m.From.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("a guest that is to go on", func(f guest.Facts) bool { return f.RunState == runstate.PausedToMigrate && f.Resume })
	if err := m.From.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("a guest that runs", guesttest.In(runstate.Running))
}

func TestABrokenPostCopyGoesOn(t *testing.T) {
	m := newPostCopy(t)
	release := m.Source.HoldPostCopy()
	moves(t, m)
	m.Source.CutMigration()
	for _, w := range []*guesttest.Guest{m.From, m.To} {
		w.Await("the break", guesttest.At(migrationstatus.PostCopyPaused))
	}
	for _, migration := range []types.UID{"another", "m"} {
		if err := m.To.RecoverIncoming(t.Context(), migration, m.Socket); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.From.Recover(t.Context(), "another", m.Socket); err != nil || m.Source.Executed("migrate") != 1 {
		t.Fatalf("another migration goes on: %v", err)
	}
	if err := m.From.Recover(t.Context(), "m", m.Socket); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the rest to be sent", guesttest.At(migrationstatus.PostCopyActive))
	if err := m.From.Recover(t.Context(), "m", m.Socket); err != nil || m.Source.Executed("migrate") != 2 || m.Target.Executed("migrate-recover") != 1 {
		t.Errorf("what goes on is begun again: %v", err)
	}
	release()
	m.To.Await("the end", guesttest.At(migrationstatus.Completed))
	m.From.Await("the end", guesttest.At(migrationstatus.Completed))
}

// TestATargetWithoutUserfaultfdHasNoPostCopy: QEMU tries userfaultfd, and refuses.
func TestATargetWithoutUserfaultfdHasNoPostCopy(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Target.RefusePostCopy()
	for range 2 {
		taken, err := m.To.Listen(t.Context(), m.Socket, switchover.Transport{PostCopy: true, Channels: 4})
		if err != nil || taken != (switchover.Transport{Channels: 4}) {
			t.Errorf("QEMU takes its guest by %+v: %v", taken, err)
		}
	}
}

package guesttest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// Moving is a migration between two QEMUs, each with a Guest attached.
type Moving struct {
	From, To       *Guest
	Source, Target *qmptest.Server
	Socket         string
	Transport      switchover.Transport
	// Release lets the transfer of memory complete.
	Release func()
}

// NewMoving starts both. The migration stays active until Release is called.
func NewMoving(t *testing.T) *Moving {
	t.Helper()
	dir, err := os.MkdirTemp("", "moving") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &Moving{Source: InState(t, runstate.Running), Target: qmptest.NewIncoming(t), Socket: filepath.Join(dir, "m.sock")}
	m.Target.AddObject(machine.MarkerType, machine.IncomingMarker("m"))
	m.Release = m.Source.HoldMigration()
	m.From, m.To = Open(t, m.Source), Open(t, m.Target)
	return m
}

// Begin makes the target listen and the source begin.
func (m *Moving) Begin(t *testing.T) {
	t.Helper()
	for range 2 { // a repetition does no harm
		if taken, err := m.To.Listen(t.Context(), m.Socket, m.Transport); err != nil || taken != m.Transport {
			t.Fatalf("QEMU takes its guest by %+v: %v", taken, err)
		}
	}
	if err := m.From.Begin(t.Context(), handover.Begin{Migration: "m", Socket: m.Socket, AutoConverge: true, Downtime: 100 * time.Millisecond, Transport: m.Transport}); err != nil {
		t.Fatal(err)
	}
}

// At returns a condition for Await.
func At(status migrationstatus.Status) func(guest.Facts) bool {
	return func(f guest.Facts) bool { return f.Migration.Status == status }
}

// HandOver brings the guest to the target, which does not run it yet.
func (m *Moving) HandOver(t *testing.T) {
	t.Helper()
	m.Release()
	m.From.Await("the switchover", At(migrationstatus.PreSwitchover))
	if err := m.From.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := m.From.Await("the end at the source", At(migrationstatus.Completed)); !f.Migration.HasSentGuest() || f.RunState != runstate.PostMigrate {
		t.Errorf("the source is %+v", f)
	}
	if f := m.To.Await("the end at the target", At(migrationstatus.Completed)); !f.Migration.HasArrived() || f.Migration.Ran || f.RunState != runstate.InMigrate {
		t.Errorf("the target is %+v", f)
	}
}

package handover_test

import (
	"testing"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/memoryhotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

const mebibyte = 1 << 20

// TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent: the guest is emulated, like all guests of the model.
func TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent(t *testing.T) {
	for name, plug := range map[string]func(*qmptest.Server, *guesttest.Guest) error{
		"it was given some": func(_ *qmptest.Server, g *guesttest.Guest) error {
			return memoryhotplug.Set(t.Context(), g.Monitor(), machine.MemoryDevice, 2*mebibyte)
		},
		"it has some": func(qemu *qmptest.Server, _ *guesttest.Guest) error { qemu.TakeMemory(2 * mebibyte); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := guesttest.NewMoving(t)
			if err := plug(m.Source, m.From); err != nil {
				t.Fatal(err)
			}
			m.Begin(t)
			if m.Source.Executed("stop") != 1 || !m.Source.HasObject(machine.PausedMarker("m")) {
				t.Error("it has not been stopped")
			}
			m.From.Await("memory that is sent", guesttest.At(migrationstatus.Active))
			m.From.Await("a guest that is stopped", guesttest.In(runstate.PausedToMigrate))
			m.HandOver(t)
			if err := m.To.Take(t.Context(), "m", nothing, func() {}); err != nil {
				t.Fatal(err)
			}
			m.To.Await("a guest that runs", guesttest.In(runstate.Running))
		})
	}
	m := guesttest.NewMoving(t)
	m.Begin(t)
	if m.Source.Executed("stop") != 0 {
		t.Error("a guest without plugged memory was stopped")
	}
}

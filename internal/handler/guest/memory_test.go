package guest

import (
	"testing"

	"drydock.dev/drydock/internal/qemu/memoryhotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

const mebibyte = 1 << 20

// TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent: the guest is emulated, like all guests of the model.
func TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent(t *testing.T) {
	for name, plug := range map[string]func(*qmptest.Server, *watched) error{
		"it was given some": func(_ *qmptest.Server, g *watched) error {
			return memoryhotplug.Set(t.Context(), g.Monitor(), machine.MemoryDevice, 2*mebibyte)
		},
		"it has some": func(qemu *qmptest.Server, _ *watched) error { qemu.TakeMemory(2 * mebibyte); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t)
			if err := plug(m.source, m.from); err != nil {
				t.Fatal(err)
			}
			m.begin(t)
			if m.source.Executed("stop") != 1 || !m.source.HasObject(machine.PausedMarker("m")) {
				t.Error("it has not been stopped")
			}
			m.from.await("memory that is sent", at(migrationstatus.Active))
			m.from.await("a guest that is stopped", in(runstate.PausedToMigrate))
			m.handOver(t)
			if err := m.to.Take(t.Context(), "m", nothing, func() {}); err != nil {
				t.Fatal(err)
			}
			m.to.await("a guest that runs", in(runstate.Running))
		})
	}
	m := newMoving(t)
	m.begin(t)
	if m.source.Executed("stop") != 0 {
		t.Error("a guest without plugged memory was stopped")
	}
}

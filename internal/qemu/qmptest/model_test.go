package qmptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

func TestTheModelConforms(t *testing.T) {
	conformance(t, func(t *testing.T, events func(qmp.Event), more ...string) *qmp.Client {
		server := New
		if len(more) > 0 {
			server = NewIncoming
		}
		c, err := qmp.New(t.Context(), server(t).Dial(), events)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

func TestQEMUConforms(t *testing.T) {
	conformance(t, func(t *testing.T, events func(qmp.Event), more ...string) *qmp.Client {
		dir, err := os.MkdirTemp("", "qmp") // t.TempDir is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), append(Arguments(accelerator.Of(t), dir, "qmp.sock"), more...)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatalf("starting QEMU: %v", err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = os.RemoveAll(dir)
		})
		for deadline, tick := time.Now().Add(4*time.Minute), time.Tick(5*time.Millisecond); ; <-tick {
			c, err := qmp.Dial(t.Context(), filepath.Join(dir, "qmp.sock"), events)
			if err == nil {
				return c
			}
			if time.Now().After(deadline) {
				t.Fatalf("QEMU does not listen: %v", err)
			}
		}
	})
}

// TestAMonitorIsServedOnASocket: connections must be served one after another, as QEMU does.
func TestAMonitorIsServedOnASocket(t *testing.T) {
	s := New(t)
	socket := filepath.Join(t.TempDir(), "q")
	s.Listen(socket)
	for range 2 {
		c, err := qmp.Dial(t.Context(), socket, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Execute(t.Context(), "query-status", nil, nil); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	if got := s.Executed("query-status"); got != 2 {
		t.Errorf("%d commands were executed", got)
	}
}

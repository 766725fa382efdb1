package qmptest

import (
	"bytes"
	"fmt"
	"net"
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
	conformance(t, func(t *testing.T, events func(qmp.Event), more ...string) (ordinary, outOfBand *qmp.Client) {
		start := New
		if len(more) > 0 {
			start = NewIncoming
		}
		server := start(t)
		ordinary, err := qmp.New(t.Context(), server.Dial(), events)
		if err != nil {
			t.Fatal(err)
		}
		return ordinary, outOfBandMonitor(t, server.Dial())
	})
}

func TestQEMUConforms(t *testing.T) {
	conformance(t, func(t *testing.T, events func(qmp.Event), more ...string) (ordinary, outOfBand *qmp.Client) {
		dir, err := os.MkdirTemp("", "qmp") // t.TempDir is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		memory := filepath.Join(dir, "memory")
		if err := os.WriteFile(memory, bytes.Repeat([]byte{1}, slowMemory), 0o600); err != nil {
			t.Fatal(err)
		}
		more = append(more, "-device", fmt.Sprintf("loader,file=%s,addr=%d,force-raw=on", memory, slowMemoryAt),
			"-chardev", "socket,id=launcher0,fd=3", "-mon", "chardev=launcher0,mode=control")
		ours, theirs, err := qmp.SocketPair()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), append(Arguments(accelerator.Of(t), dir, "qmp.sock"), more...)...)
		cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
		err = cmd.Start()
		_ = theirs.Close()
		if err != nil {
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
				return c, outOfBandMonitor(t, ours)
			}
			if time.Now().After(deadline) {
				t.Fatalf("QEMU does not listen: %v", err)
			}
		}
	})
}

// slowMemory is memory, in bytes, that takes a while to send: it is not zero.
const (
	slowMemory   = 4 << 20
	slowMemoryAt = 16 << 20
)

func outOfBandMonitor(t *testing.T, conn net.Conn) *qmp.Client {
	t.Helper()
	c, err := qmp.NewOutOfBand(t.Context(), conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
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

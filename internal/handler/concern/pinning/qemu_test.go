package pinning

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

// startQEMU returns the monitor and the process of a QEMU whose guest, with two CPUs, has not begun.
func startQEMU(t *testing.T) (*qmp.Client, int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pin") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "qmp.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(t),
		"-smp", "2", "-m", "64", "-display", "none", "-S", "-qmp", "unix:"+socket+",server=on,wait=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for tick := time.Tick(5 * time.Millisecond); ; <-tick {
		monitor, err := qmp.Dial(t.Context(), socket, func(qmp.Event) {})
		if err == nil {
			t.Cleanup(func() { _ = monitor.Close() })
			return monitor, cmd.Process.Pid
		}
		if cmd.ProcessState != nil || t.Context().Err() != nil {
			t.Fatalf("connecting to QEMU: %v", err)
		}
	}
}

func TestTheThreadsOfQEMUArePinned(t *testing.T) {
	monitor, pid := startQEMU(t)
	node := Process{Launcher: os.Getpid(), QEMU: func() int { return pid }}
	has, err := node.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(has) < 2 {
		t.Skip("the machine has one CPU")
	}
	c, r := New(node), dedicated(false)
	seen, err := c.Observe(t.Context(), concern.QueryOf(monitor), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Act(t.Context(), monitor, r, c.Decide(r, seen)); err != nil {
		t.Fatal(err)
	}
	if seen, err = c.Observe(t.Context(), concern.QueryOf(monitor), r); err != nil {
		t.Fatal(err)
	}
	if again := c.Decide(r, seen); again.Due || len(seen.vcpus) != 2 {
		t.Errorf("the next plan is %+v for %d virtual CPUs", again, len(seen.vcpus))
	}
	var pinned []int
	for _, v := range seen.vcpus {
		pinned = append(pinned, seen.threads[v.Thread]...)
	}
	if slices.Sort(pinned); len(pinned) != 2 || pinned[0] == pinned[1] {
		t.Errorf("the threads of the virtual CPUs run on the CPUs %v", pinned)
	}
}

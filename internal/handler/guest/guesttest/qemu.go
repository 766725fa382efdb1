package guesttest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

// StartQEMU starts a real QEMU with two CPUs, whose guest does not begin. It returns a connection to its monitor, and its
// process.
func StartQEMU(t *testing.T, args ...string) (*net.UnixConn, int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qemu") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "qmp.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), append([]string{
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(t), "-smp", "2",
		"-m", "64", "-display", "none", "-S", "-qmp", "unix:" + socket + ",server=on,wait=off",
	}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	return dial(t, socket), cmd.Process.Pid
}

func dial(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	for deadline, tick := time.Now().Add(Patience), time.Tick(5*time.Millisecond); ; <-tick {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil {
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatalf("QEMU does not listen: %v", err)
		}
	}
}

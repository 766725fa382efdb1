package guestusage

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

// A real QEMU, whose guest has not begun, takes all queries.
func TestQEMUTakesTheQueries(t *testing.T) {
	dir, err := os.MkdirTemp("", "usage") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "qmp.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(t), "-smp", "2",
		"-m", "64", "-display", "none", "-S", "-device", "virtio-balloon-pci,id="+machine.BalloonID,
		"-blockdev", "driver=null-co,node-name=n,size=1048576", "-device", "virtio-blk-pci,drive=n,id="+machine.DiskID("root"),
		"-qmp", "unix:"+socket+",server=on,wait=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	w := guesttest.Watch(t, dial(t, socket))
	for range 2 { // also when a report is being waited for
		u := (&Meter{}).Measure(t.Context(), Subject{QEMU: w.Guest, Spec: spec(), Now: time.Now()})
		if size, known := u.Guest[metrics.Balloon].Value(); !known || size < 64<<20 || len(u.Drives) != 1 || len(u.VCPUs) != 2 {
			t.Errorf("figures %+v", u)
		}
		if _, known := u.Guest[metrics.Usable].Value(); known {
			t.Error("a guest without a driver has reported its memory")
		}
	}
	var interval int64
	property := map[string]any{"path": balloonPath, "property": balloonInterval}
	if err := w.Monitor().Execute(t.Context(), "qom-get", property, &interval); err != nil || interval != never {
		t.Errorf("the driver is asked every %d s: %v", interval, err)
	}
}

func dial(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	for deadline, tick := time.Now().Add(guesttest.Patience), time.Tick(5*time.Millisecond); ; <-tick {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil {
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatalf("QEMU does not listen: %v", err)
		}
	}
}

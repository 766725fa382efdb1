package guestusage

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/rules/machine"
)

// A real QEMU, whose guest has not begun, takes all queries.
func TestQEMUTakesTheQueries(t *testing.T) {
	conn, _ := guesttest.StartQEMU(t, "-device", "virtio-balloon-pci,id="+machine.BalloonID,
		"-blockdev", "driver=null-co,node-name=n,size=1048576", "-device", "virtio-blk-pci,drive=n,id="+machine.DiskID("root"))
	w := guesttest.Watch(t, conn)
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

package driver

import (
	"testing"

	"drydock.dev/drydock/internal/handler/metrics"
)

// A guest that has taken QEMU over can end the connection to its monitor again and again, but gets no new bounds by that.
func TestTheBoundsOfMetricsOutliveTheMonitorsConnection(t *testing.T) {
	_, _, h := driven(t, "reattached")
	h.supervisor.mu.Lock()
	d := h.supervisor.drivers["reattached"]
	h.supervisor.mu.Unlock()
	before := d.attached.Load()
	var first metrics.Usage
	awaitTrue(t, "figures", func() bool {
		usages := h.supervisor.Usage(t.Context())
		if len(usages) == 1 {
			first = usages[0]
		}
		return len(first.Drives) > 0
	})
	_ = before.guest.Monitor().Close()
	awaitTrue(t, "another connection", func() bool {
		now := d.attached.Load()
		return now != nil && now != before
	})
	after := d.attached.Load()
	if after.meter != before.meter || after.agent == before.agent || after.guest == before.guest {
		t.Error("the guest's totals begin anew")
	}
	if usages := h.supervisor.Usage(t.Context()); len(usages) != 1 || len(usages[0].Drives) != len(first.Drives) {
		t.Errorf("figures %+v", usages)
	}
}

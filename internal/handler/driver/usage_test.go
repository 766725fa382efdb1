package driver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/metrics"
)

func TestProcessUsage(t *testing.T) {
	const stat = "42 (qemu ) S (x) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 5 0 1000 900000 300 18446744073709551615 1 1 0 0 0\n"
	if cpu, resident := processUsage(stat, 4096); cpu != 2 || resident != 300*4096 {
		t.Errorf("CPU %v s, resident %v bytes", cpu, resident)
	}
	if cpu, resident := processUsage("42 (short) S 1\n", 4096); cpu != 0 || resident != 0 {
		t.Errorf("of a line cut short: %v, %v", cpu, resident)
	}
}

func TestLinkCounters(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  tap0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
`
	want := map[string]metrics.Interface{
		"lo":   {},
		"tap0": {SentBytes: 1000, SentPackets: 10, SendErrors: 1, SendDrops: 2, ReceivedBytes: 2000, ReceivedPackets: 20, ReceiveErrors: 3, ReceiveDrops: 4},
	}
	if diff := cmp.Diff(want, linkCounters(text)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestEachDriveIsToldOnce(t *testing.T) {
	disks := []v1.Disk{{Name: "root"}, {Name: "data"}}
	var answer []blockStats
	for _, path := range []string{
		"/machine/peripheral/disk-root/virtio-backend", "disk-data", "disk-data", "/machine/unattached/device[3]",
	} {
		answer = append(answer, blockStats{Device: path})
	}
	var names []string
	for _, d := range drivesOf(answer, disks) {
		names = append(names, d.Name)
	}
	if want := []string{"root", "data"}; !slices.Equal(names, want) {
		t.Errorf("drives %v, want %v", names, want)
	}
}

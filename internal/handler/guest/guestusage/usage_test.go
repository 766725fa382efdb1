package guestusage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// process returns process 42 of a /proc with the given file.
func process(t *testing.T, file, text string) procfs.Proc {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "42", file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := fs.Proc(42)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessUsage(t *testing.T) {
	const stat = "42 (qemu ) S (x) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 5 0 1000 900000 300 18446744073709551615 1 1 0 0 0 0 4096 17095 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	if cpu, resident := processUsage(process(t, "stat", stat)); cpu != 2 || resident != float64(300*os.Getpagesize()) {
		t.Errorf("CPU %v s, resident %v bytes", cpu, resident)
	}
	if cpu, resident := processUsage(process(t, "stat", "42 (short) S 1\n")); cpu != 0 || resident != 0 {
		t.Errorf("of a line cut short: %v, %v", cpu, resident)
	}
}

func TestTraffic(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  tap0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
`
	taps := map[string]string{"default": "tap0", "loop": "lo", "absent": "tap1"}
	want := map[string]metrics.Interface{
		"loop":    {Name: "loop"},
		"default": {Name: "default", SentBytes: 1000, SentPackets: 10, SendErrors: 1, SendDrops: 2, ReceivedBytes: 2000, ReceivedPackets: 20, ReceiveErrors: 3, ReceiveDrops: 4},
	}
	got := map[string]metrics.Interface{}
	for _, i := range traffic(process(t, "net/dev", text), taps) {
		got[i.Name] = i
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if got := traffic(process(t, "net/other", text), taps); got != nil {
		t.Errorf("without the kernel's list there are counters: %v", got)
	}
}

func TestEachDriveIsReportedOnce(t *testing.T) {
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

func TestUsage(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	qemu.AddDisk(machine.DiskID("data"), 1<<20)
	u := Of(t.Context(), guesttest.Open(t, qemu).Guest, guesttest.Disks, nil)
	var names []string
	for _, d := range u.Drives {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"data", "root"}, names); diff != "" {
		t.Errorf("drives (-want +got):\n%s", diff)
	}
	// The model is in the test's own process.
	if u.ResidentBytes <= 0 {
		t.Errorf("usage: %+v", u)
	}
}

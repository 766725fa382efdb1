package guestusage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/qemu/vcpus"
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
	var got metrics.Guest
	processUsage(process(t, "stat", stat), &got)
	want := metrics.Guest{
		metrics.CPU: metrics.Known(2), metrics.UserCPU: metrics.Known(1.5), metrics.SystemCPU: metrics.Known(0.5),
		metrics.Resident: metrics.Known(float64(300 * os.Getpagesize())),
	}
	if got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
	got = metrics.Guest{}
	processUsage(process(t, "stat", "42 (short) S 1\n"), &got)
	if got != (metrics.Guest{}) {
		t.Errorf("of a line cut short: %+v", got)
	}
}

func TestTraffic(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  tap0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
`
	taps := map[string]string{"default": "tap0", "absent": "tap1"}
	want := metrics.Interface{Name: "default"}
	for i, value := range map[int]float64{
		metrics.SentBytes: 1000, metrics.SentPackets: 10, metrics.SendErrors: 1, metrics.SendDrops: 2,
		metrics.ReceivedBytes: 2000, metrics.ReceivedPackets: 20, metrics.ReceiveErrors: 3, metrics.ReceiveDrops: 4,
	} {
		want.Figures[i] = metrics.Known(value)
	}
	if got := traffic([]byte(text), taps); !slices.Equal(got, []metrics.Interface{want}) {
		t.Errorf("counters %+v, want %+v", got, want)
	}
	for _, broken := range []string{"", "tap0", "tap0: 1 2 3\n"} {
		if got := traffic([]byte(broken), taps); got != nil {
			t.Errorf("of the list %q there are counters: %v", broken, got)
		}
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

// spec returns that of the tests' guest, with a balloon.
func spec() *v1.VirtualMachineInstanceSpec {
	return &v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{
		Memory: &v1.Memory{Guest: new(resource.MustParse("64Mi"))}, Devices: v1.Devices{Disks: guesttest.Disks},
	}}
}

// questions are QEMU's answers to the model's missing commands, and their number.
type questions struct {
	mu    sync.Mutex
	asked int
	set   []string
	stats string
}

func answering(qemu *qmptest.Server, stats string) *questions {
	q := &questions{stats: stats}
	qemu.Override("query-balloon", func(json.RawMessage) (any, error) { return map[string]int64{"actual": 48 << 20}, nil })
	qemu.Override("query-cpus-fast", func(json.RawMessage) (any, error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.asked++
		// The model's thread is one of this process; the others are none, or appear again.
		own := os.Getpid()
		return []map[string]int{{"cpu-index": 0, "thread-id": own}, {"cpu-index": 0, "thread-id": own}, {"cpu-index": -1, "thread-id": own}, {"cpu-index": 1, "thread-id": 1 << 30}}, nil
	})
	qemu.Override("qom-get", func(args json.RawMessage) (any, error) {
		if bytes.Contains(args, []byte(`"type"`)) {
			return "pc-q35-7.2-machine", nil
		}
		return json.RawMessage(q.stats), nil
	})
	qemu.Override("qom-set", func(args json.RawMessage) (any, error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.set = append(q.set, string(args))
		return struct{}{}, nil
	})
	return q
}

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const report = `{"stats": {"stat-swap-in": 1, "stat-swap-out": 2, "stat-major-faults": 3, "stat-minor-faults": 4, "stat-free-memory": 5,
	"stat-total-memory": 6, "stat-available-memory": 7, "stat-disk-caches": 18446744073709551615}, "last-update": %d}`

func TestUsage(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	qemu.AddDisk(machine.DiskID("data"), 1<<20)
	q := answering(qemu, fmt.Sprintf(report, start.Unix()-60))
	m, g := &Meter{}, guesttest.Open(t, qemu)
	u := m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: spec(), Now: start})
	var names []string
	for _, d := range u.Drives {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"data", "root"}, names); diff != "" {
		t.Errorf("drives (-want +got):\n%s", diff)
	}
	for at, want := range map[int]float64{
		metrics.Domain: 64 << 20, metrics.Balloon: 48 << 20, metrics.SwapIn: 1, metrics.SwapOut: 2, metrics.MajorFaults: 3,
		metrics.MinorFaults: 4, metrics.Unused: 5, metrics.Available: 6, metrics.Usable: 7,
	} {
		if u.Guest[at] != metrics.Known(want) {
			t.Errorf("figure %d is %+v, want %v", at, u.Guest[at], want)
		}
	}
	if _, known := u.Guest[metrics.CachedFiles].Value(); known {
		t.Error("a figure that the driver did not report is known")
	}
	// The model is in the test's own process.
	for _, at := range []int{metrics.Resident, metrics.CPU, metrics.Affinity} {
		if value, known := u.Guest[at].Value(); !known || at != metrics.CPU && value <= 0 {
			t.Errorf("figure %d is %v, %v", at, value, known)
		}
	}
	if seconds, known := u.VCPUs[0].Seconds.Value(); len(u.VCPUs) != 1 || !known || seconds <= 0 {
		t.Errorf("virtual CPUs %+v", u.VCPUs)
	}
	want := []string{
		`{"path":"/machine/peripheral/balloon0","property":"guest-stats-polling-interval","value":0}`,
		`{"path":"/machine/peripheral/balloon0","property":"guest-stats-polling-interval","value":2147483647}`,
	}
	if diff := cmp.Diff(want, q.set); diff != "" {
		t.Errorf("the next report is asked for by (-want +got):\n%s", diff)
	}
}

func TestAReportOfTheDriverHasAnEnd(t *testing.T) {
	for what, updated := range map[string]int64{
		"there was none": 0, "it is old": start.Unix() - 301, "it is of the future": start.Unix() + 301,
	} {
		var a answers
		if err := json.Unmarshal(fmt.Appendf(nil, report, updated), &a.reported); err != nil {
			t.Fatal(err)
		}
		var u metrics.Guest
		if a.memory(&u, start); u != (metrics.Guest{}) {
			t.Errorf("%s, and it counts: %+v", what, u)
		}
	}
}

func TestAGuestWithoutABalloonIsNotAskedForOne(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	q := answering(qemu, fmt.Sprintf(report, start.Unix()))
	without := spec()
	without.Domain.Devices.AutoattachMemBalloon = new(false)
	u := (&Meter{}).Measure(t.Context(), Subject{QEMU: guesttest.Open(t, qemu).Guest, Spec: without, Now: start})
	if len(q.set) > 0 || slices.Contains(qemu.Commands(), "query-balloon") {
		t.Errorf("QEMU was asked %v", qemu.Commands())
	}
	if _, known := u.Guest[metrics.Balloon].Value(); known {
		t.Error("its size is known")
	}
}

func TestQEMUIsAskedAtMostOnceInTenSeconds(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	q := answering(qemu, `{}`)
	m, g := &Meter{}, guesttest.Open(t, qemu)
	for i, step := range []struct {
		after time.Duration
		asked int
	}{{0, 1}, {time.Second, 1}, {9999 * time.Millisecond, 1}, {10 * time.Second, 2}, {15 * time.Second, 2}, {25 * time.Second, 3}} {
		u := m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: spec(), Now: start.Add(step.after)})
		if q.asked != step.asked || len(u.Drives) != 1 {
			t.Errorf("step %d: QEMU was asked %d times, want %d; %d drives", i, q.asked, step.asked, len(u.Drives))
		}
	}
}

// While a guest is handed over, each query would delay it. The last answers count for a minute.
func TestQEMUIsNotAskedWhileItsGuestLeaves(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	q := answering(qemu, `{}`)
	m, g := &Meter{}, guesttest.Open(t, qemu)
	measure := func(after time.Duration) metrics.Usage {
		return m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: spec(), Now: start.Add(after)})
	}
	measure(0)
	g.Invalidate() // an event has come that is not read yet
	if u := measure(10 * time.Second); q.asked != 1 || len(u.Drives) != 1 {
		t.Errorf("after an event QEMU was asked %d times; %d drives", q.asked, len(u.Drives))
	}
	if u := measure(61 * time.Second); q.asked != 1 || len(u.Drives) != 0 || len(u.VCPUs) != 0 {
		t.Errorf("figures of a minute ago count: %+v", u)
	}
	g.Refresh(t.Context(), guesttest.Disks)
	if u := measure(71 * time.Second); q.asked != 2 || len(u.Drives) != 1 {
		t.Errorf("afterwards QEMU was asked %d times; %d drives", q.asked, len(u.Drives))
	}
}

// Six unread commands for each scrape would fill the monitor's socket in a few hours.
func TestAQEMUThatHangsIsAskedOnce(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	q := answering(qemu, `{}`)
	m, g := &Meter{}, guesttest.Open(t, qemu)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	qemu.Override("query-blockstats", func(json.RawMessage) (any, error) { cancel(); <-release; return []blockStats{}, nil })
	m.Measure(ctx, Subject{QEMU: g.Guest, Spec: spec(), Now: start})
	if g.Measurable() {
		t.Error("it is asked again")
	}
	close(release)
	g.Refresh(t.Context(), guesttest.Disks)
	m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: spec(), Now: start.Add(Every)})
	if q.asked != 2 { // the model answers the first query late, too
		t.Errorf("after it has answered, it was asked %d times in all, want 2", q.asked)
	}
}

// A guest that has left the node may come back, to another QEMU.
func TestTheThreadsOfAnotherQEMUAreForgotten(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	answering(qemu, `{}`)
	m := &Meter{pid: 1, threads: threads{outer: map[int]int{os.Getpid(): 1 << 30}}}
	u := m.Measure(t.Context(), Subject{QEMU: guesttest.Open(t, qemu).Guest, Spec: spec(), Now: start})
	if len(u.VCPUs) != 1 {
		t.Errorf("virtual CPUs %+v", u.VCPUs)
	}
}

func TestCountersNeverGoBack(t *testing.T) {
	var t0 totals
	read := func(faults, reads, seconds, bytes metrics.Figure) (out [4]metrics.Figure) {
		u := metrics.Usage{
			VCPUs: []metrics.VCPU{{ID: 1, Seconds: seconds}}, Drives: []metrics.Drive{{Name: "root"}}, Interfaces: []metrics.Interface{{Name: "root"}},
		}
		u.Guest[metrics.MajorFaults], u.Guest[metrics.Usable] = faults, faults
		u.Drives[0].Figures[metrics.Reads], u.Interfaces[0].Figures[metrics.SentBytes] = reads, bytes
		t0.add(&u)
		if u.Guest[metrics.Usable] != faults {
			t.Error("a gauge was summed")
		}
		return [4]metrics.Figure{u.Guest[metrics.MajorFaults], u.Drives[0].Figures[metrics.Reads], u.VCPUs[0].Seconds, u.Interfaces[0].Figures[metrics.SentBytes]}
	}
	k := metrics.Known
	for i, step := range []struct{ in, want [4]metrics.Figure }{
		{[4]metrics.Figure{k(5), k(50), k(1), k(7)}, [4]metrics.Figure{k(5), k(50), k(1), k(7)}},
		{[4]metrics.Figure{k(2), {}, k(1.5), k(7)}, [4]metrics.Figure{k(7), {}, k(1.5), k(7)}}, // a reboot, and no answer
		{[4]metrics.Figure{k(3), k(60), k(0), k(0)}, [4]metrics.Figure{k(8), k(60), k(1.5), k(7)}},
		{[4]metrics.Figure{k(1), k(1), k(2), k(1)}, [4]metrics.Figure{k(9), k(61), k(3.5), k(8)}},
	} {
		if got := read(step.in[0], step.in[1], step.in[2], step.in[3]); got != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
}

// The memory for devices that were unplugged is bounded.
func TestTotalsForgetDevicesThatHaveGone(t *testing.T) {
	var sums totals
	for i := range 3 * maxTotals {
		u := metrics.Usage{Interfaces: []metrics.Interface{{Name: fmt.Sprint("nic", i)}, {Name: "stays"}}}
		u.Interfaces[0].Figures[0], u.Interfaces[1].Figures[0] = metrics.Known(1), metrics.Known(float64(i%2))
		sums.add(&u)
		if len(sums) > maxTotals+2 {
			t.Fatalf("there are %d", len(sums))
		}
		if want := metrics.Known(float64((i + 1) / 2)); u.Interfaces[1].Figures[0] != want {
			t.Fatalf("measurement %d of the one that stays: %+v, want %+v", i, u.Interfaces[1].Figures[0], want)
		}
	}
}

func TestTheTimesOfVirtualCPUs(t *testing.T) {
	seconds, delay := schedule([]byte("1500000000 250000000 12\n"))
	if seconds != metrics.Known(1.5) || delay != metrics.Known(0.25) {
		t.Errorf("times %+v, %+v", seconds, delay)
	}
	if seconds, delay := schedule([]byte("7")); seconds != (metrics.Figure{}) || delay != (metrics.Figure{}) {
		t.Errorf("of a line cut short: %+v, %+v", seconds, delay)
	}
}

// Emulated CPUs share one thread. The sum of their times must be the thread's.
func TestCPUsOfOneThreadShareItsTimes(t *testing.T) {
	var known threads
	total := func(indexes ...int) (sum float64) {
		var cpus vcpus.List
		for _, i := range indexes {
			cpus = append(cpus, vcpus.VCPU{Index: i, Thread: os.Getpid()})
		}
		list := known.usage(os.Getpid(), cpus, &metrics.Guest{}, start)
		if len(list) != len(indexes) {
			t.Fatalf("%d of %d CPUs have figures", len(list), len(indexes))
		}
		for _, v := range list {
			seconds, _ := v.Seconds.Value()
			sum += seconds
		}
		return sum
	}
	before, shared, after := total(0), total(0, 1, 2), total(0)
	const rounding = 1e-6
	if shared < before-rounding || shared > after+rounding {
		t.Errorf("three CPUs have %f s together, and their thread %f before and %f after", shared, before, after)
	}
}

// A QEMU that names threads that it does not have must not cause a search each time, nor show another process's.
func TestThreadsAreSearchedOnceAMinute(t *testing.T) {
	var known threads
	other := vcpus.List{{Index: 0, Thread: 1 << 30}}
	for _, step := range []struct {
		after time.Duration
		found time.Duration
	}{{0, 0}, {time.Second, 0}, {59 * time.Second, 0}, {time.Minute, time.Minute}, {90 * time.Second, time.Minute}} {
		if list := known.usage(os.Getpid(), other, &metrics.Guest{}, start.Add(step.after)); len(list) != 0 {
			t.Errorf("after %s there are figures of another's thread: %+v", step.after, list)
		}
		if got := known.found.Sub(start); got != step.found {
			t.Errorf("after %s the last search was after %s, want %s", step.after, got, step.found)
		}
	}
	own := vcpus.List{{Index: 0, Thread: os.Getpid()}}
	if list := known.usage(os.Getpid(), own, &metrics.Guest{}, start.Add(91*time.Second)); len(list) != 1 || !known.found.Equal(start.Add(time.Minute)) {
		t.Errorf("a thread that is known: %+v, searched after %s", list, known.found.Sub(start))
	}
}

package runningguest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guestusage"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	benchmarkGuests = 100
	// monitors names the folder of the sockets of a process that answers as QEMU and its guest agents.
	monitors = "BENCHMARK_MONITORS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(monitors); dir != "" {
		answerAll(dir)
		return
	}
	os.Exit(m.Run())
}

// BenchmarkScrape measures virt-handler's CPU time for a scrape of a hundred guests, each with two virtual CPUs, two disks,
// an interface and an agent with three file systems. The issue allows 50 ms.
func BenchmarkScrape(b *testing.B) {
	dir, err := os.MkdirTemp("", "scrape")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	others := exec.Command(os.Args[0])
	others.Env = append(os.Environ(), monitors+"="+dir)
	started, err := others.StdoutPipe()
	if err == nil {
		err = others.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = others.Process.Kill(), others.Wait() }()
	if _, err := bufio.NewReader(started).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	clock := &clock{now: time.Now()}
	guests := make([]*Guest, benchmarkGuests)
	for i := range guests {
		guests[i] = benchmarkGuest(b, dir, i, clock)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector("node1", func(ctx context.Context) []metrics.Usage {
		usages := make([]metrics.Usage, len(guests))
		var asking sync.WaitGroup
		for i, g := range guests {
			asking.Go(func() { usages[i] = g.Usage(ctx, clock.Now()) })
		}
		asking.Wait()
		return usages
	}))
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	scrape := func() int {
		clock.Pass(guestusage.Every)
		answer := &lines{header: http.Header{}}
		page.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil))
		return answer.n
	}
	for range 4 { // the balloons' reports and the agents' answers come in the next one
		scrape()
	}
	shown, before := 0, cpuTime(b)
	for b.Loop() {
		shown = scrape()
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(shown), "lines")
}

// TestTheScrapeIsMeasured runs the benchmark, which `go test` alone does not.
func TestTheScrapeIsMeasured(t *testing.T) {
	result := testing.Benchmark(BenchmarkScrape)
	if result.N == 0 || result.Extra["lines"] < 20*benchmarkGuests {
		t.Fatalf("the benchmark has measured %d scrapes of %v lines", result.N, result.Extra["lines"])
	}
	t.Logf("a scrape of %d guests takes %.1f ms of CPU time", benchmarkGuests, result.Extra["cpu-ms/op"])
}

// lines counts the lines of an answer, two of which describe each metric.
type lines struct {
	header http.Header
	n      int
}

func (l *lines) Header() http.Header { return l.header }

func (l *lines) WriteHeader(int) {}

func (l *lines) Write(text []byte) (int, error) {
	l.n += bytes.Count(text, []byte("\n"))
	return len(text), nil
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func benchmarkGuest(b *testing.B, dir string, i int, clock *clock) *Guest {
	dial := func(ctx context.Context, socket string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, socket))
	}
	conn, err := dial(b.Context(), "qemu")
	if err != nil {
		b.Fatal(err)
	}
	monitor, ok := conn.(*net.UnixConn)
	if !ok {
		b.Fatal("the monitor is no unix socket")
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = "shop", fmt.Sprintf("machine-%d", i)
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("2Gi"))}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}, {Name: "data"}}
	qemu, err := guest.Open(b.Context(), monitor, guest.Env{
		OnEvent: func(qmp.Event) bool { return false }, Wake: func() {}, Now: clock.Now, Log: logr.Discard(),
	}, vmi.Spec.Domain.Devices.Disks)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(qemu.Close)
	agent := guestagent.New(guestagent.Env{
		Dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "agent") }, Places: guestagent.NewPlaces(),
		ForFigures: guestagent.NewPlacesForFigures(), Record: &guestagent.Record{},
		Go: func(f func()) { go f() }, Wake: func() {}, Now: clock.Now, Log: logr.Discard(),
	}, nil)
	agent.HandleEvent(qmp.Event{Name: "VSERPORT_CHANGE", Data: fmt.Appendf(nil, `{"id": %q, "open": true}`, machine.AgentPort)})
	agent.SyncPolling(b.Context(), 1)
	b.Cleanup(agent.Close)
	return &Guest{
		VMI: vmi, QEMU: qemu, Agent: agent, Meter: &guestusage.Meter{},
		Interfaces: []network.Interface{{Name: "default", Tap: "lo"}}, // its only sure device
	}
}

// answerAll answers as a hundred QEMUs and their agents.
func answerAll(dir string) {
	for socket, serve := range map[string]func(net.Conn){"qemu": answerAsQEMU, "agent": answerAsAgent} {
		listener, err := net.Listen("unix", filepath.Join(dir, socket))
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go serve(conn)
			}
		}()
	}
	fmt.Println("listening")
	select {}
}

func answerAsQEMU(conn net.Conn) {
	const drive = `{"device":"","qdev":"/machine/peripheral/disk-%s/virtio-backend","node-name":"n","stats":{"unmap_operations":0,"unmap_merged":0,"failed_zone_append_operations":0,` +
		`"flush_total_time_ns":123456789,"wr_highest_offset":1073741824,"wr_total_time_ns":987654321,"failed_wr_operations":0,"failed_rd_operations":0,"wr_merged":0,` +
		`"wr_bytes":123456512,"timed_stats":[],"failed_unmap_operations":0,"failed_flush_operations":0,"account_invalid":true,"rd_total_time_ns":456789123,` +
		`"invalid_unmap_operations":0,"flush_operations":345,"wr_operations":12345,"unmap_bytes":0,"rd_merged":0,"rd_bytes":345678848,"unmap_total_time_ns":0,` +
		`"invalid_flush_operations":0,"account_failed":true,"idle_time_ns":1234567,"rd_operations":23456,"invalid_wr_operations":0,"invalid_rd_operations":0}}`
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 2 {
		panic("there are no two threads")
	}
	cpu := func(i int) string {
		return fmt.Sprintf(`{"cpu-index":%d,"qom-path":"/machine/unattached/device[%[1]d]","thread-id":%s,"target":"x86_64","props":{"core-id":0,"thread-id":0,"socket-id":%[1]d}}`, i, tasks[i].Name())
	}
	answers := map[string]string{
		"query-kvm": `{"enabled":true,"present":true}`, "qom-get": `"pc-q35-7.2-machine"`, "qom-list": `[]`, "query-jobs": `[]`, "query-status": `{"status":"running","running":true}`,
		"query-blockstats": "[" + fmt.Sprintf(drive, "root") + "," + fmt.Sprintf(drive, "data") + "]",
		"query-cpus-fast":  "[" + cpu(0) + "," + cpu(1) + "]",
		"query-balloon":    `{"actual":2147483648}`,
	}
	updated := time.Now().Unix()
	fmt.Fprintln(conn, `{"QMP": {"version": {}, "capabilities": []}}`)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var command struct {
			Execute   string
			Arguments struct{ Property string }
			ID        int
		}
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			return
		}
		answer, known := answers[command.Execute]
		if !known {
			answer = `{}`
		}
		if command.Arguments.Property == "guest-stats" {
			answer = fmt.Sprintf(`{"stats":{"stat-htlb-pgfail":0,"stat-swap-out":0,"stat-available-memory":1900000000,"stat-free-memory":1500000000,"stat-minor-faults":345678,`+
				`"stat-major-faults":1234,"stat-total-memory":2000000000,"stat-swap-in":0,"stat-disk-caches":300000000,"stat-htlb-pgalloc":0},"last-update":%d}`, updated)
			updated += int64(guestusage.Every / time.Second)
		}
		fmt.Fprintf(conn, "{\"return\": %s, \"id\": %d}\n", answer, command.ID)
	}
}

func answerAsAgent(conn net.Conn) {
	defer conn.Close()
	const filesystem = `{"name":"vda%d","total-bytes":10737418240,"mountpoint":"/mnt/%[1]d","disk":[{"serial":"s","bus-type":"virtio","bus":0,"unit":0,` +
		`"pci-controller":{"bus":4,"slot":0,"domain":0,"function":0},"dev":"/dev/vda%[1]d","target":0}],"used-bytes":1073741824,"type":"ext4"}`
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var command struct {
			Execute   string
			Arguments struct{ ID int64 }
		}
		if json.Unmarshal([]byte(line[strings.LastIndexByte(line, 0xff)+1:]), &command) != nil {
			continue
		}
		answer := `{"return": {}}`
		switch command.Execute {
		case "guest-sync-delimited":
			answer = fmt.Sprintf("\xff{\"return\": %d}", command.Arguments.ID)
		case "guest-network-get-interfaces":
			answer = `{"return": [{"name":"eth0","hardware-address":"02:00:00:00:00:01","ip-addresses":[{"ip-address":"10.0.0.2","ip-address-type":"ipv4","prefix":24}]}]}`
		case "guest-get-fsinfo":
			answer = `{"return": [` + fmt.Sprintf(filesystem, 1) + "," + fmt.Sprintf(filesystem, 2) + "," + fmt.Sprintf(filesystem, 3) + `]}`
		case "guest-get-load":
			answer = `{"return": {"load1m": 0.5, "load5m": 0.25, "load15m": 0.125}}`
		}
		fmt.Fprintln(conn, answer)
	}
}

package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/downwardmetrics"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/vcpus"
)

const (
	metricsEvery = 5 * time.Second // of writing the disk, as upstream's
	// metricsRead is in bytes. The next read follows after readRest, or answerRest after an answer: a guest gets at most
	// ten answers a second, and its kernel's 4 MiB of queued writes are read soon.
	metricsRead  = 8 << 10
	readRest     = 10 * time.Millisecond
	answerRest   = 100 * time.Millisecond
	metricsQueue = 4 << 10  // bytes in the kernel, for an unread answer or two
	metricsText  = 32 << 10 // bytes of a kernel's file
)

// metrics sends figures of host and guest to the guest, by a disk, a channel, or both, with a goroutine for each. The guest
// can block only the channel's goroutine (decision 603).
type metrics struct {
	hostName   string
	disk       *os.File // the descriptor: QEMU's process can replace the name
	channel    string   // the socket on which QEMU listens, or ""
	processors int
	log        func(string)
}

// newMetrics creates the disk, which is blank until QEMU has answered queries about the guest.
func newMetrics(config Config, request *launch.DownwardMetrics, log func(string)) (*metrics, error) {
	m := &metrics{hostName: request.HostName, processors: processors(), log: log}
	if request.Channel {
		m.channel = filepath.Join(config.Dir, layout.MetricsSocket)
	}
	if request.Disk == "" {
		return m, nil
	}
	var err error
	if m.disk, err = makeMetricsDisk(request.Disk); err != nil {
		return nil, fmt.Errorf("making the disk of downward metrics: %w", err)
	}
	return m, nil
}

func makeMetricsDisk(path string) (*os.File, error) {
	// A container that has ended left the file.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(downwardmetrics.DiskSize)
	if err == nil {
		err = writeAt(f, downwardmetrics.Blank())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func writeAt(f *os.File, w downwardmetrics.Write) error {
	_, err := f.WriteAt(w.Data, w.Offset)
	return err
}

func (l *launcher) serveMetrics() {
	if l.metrics == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.spawn(func() {
		<-l.qemu.gone
		cancel()
	})
	document := func() ([]byte, error) { return l.metrics.document(ctx, l.qemu.client, l.qemu.pid) }
	if l.metrics.disk != nil {
		l.spawn(func() { l.metrics.keepDisk(ctx, document) })
	}
	if l.metrics.channel != "" {
		l.spawn(func() { l.metrics.serveChannel(ctx, document) })
	}
}

func (m *metrics) keepDisk(ctx context.Context, document func() ([]byte, error)) {
	defer m.disk.Close()
	var disk downwardmetrics.Disk
	failed := false
	for {
		err := m.writeDisk(&disk, document)
		// A failure due to QEMU's end is not logged: ctx has ended by now.
		if !sleep(ctx, metricsEvery) {
			return
		}
		if err != nil && !failed {
			m.log(fmt.Sprintf("writing the disk of downward metrics: %v", err))
		}
		failed = err != nil
	}
}

func (m *metrics) writeDisk(disk *downwardmetrics.Disk, document func() ([]byte, error)) error {
	text, err := document()
	if err != nil {
		return err
	}
	writes, err := disk.Replace(text)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if err := writeAt(m.disk, w); err != nil {
			return err
		}
	}
	return nil
}

// serveChannel replaces a connection that ended before QEMU, after an interval.
func (m *metrics) serveChannel(ctx context.Context, document func() ([]byte, error)) {
	for {
		conn, err := net.Dial("unix", m.channel)
		if err == nil {
			err = answerMetrics(ctx, conn, document)
		}
		if !sleep(ctx, metricsEvery) {
			return
		}
		m.log(fmt.Sprintf("the channel of downward metrics: %v", err))
	}
}

// answerMetrics answers the guest's requests one at a time: QEMU makes a guest wait that does not read its answer. Requests
// that are read together get one answer.
func answerMetrics(ctx context.Context, conn net.Conn, document func() ([]byte, error)) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if socket, ok := conn.(*net.UnixConn); ok {
		_ = socket.SetWriteBuffer(metricsQueue) // the larger default buffer only holds older answers
	}
	var requests downwardmetrics.Requests
	buffer := make([]byte, metricsRead)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		rest := readRest
		if verdict := requests.Read(buffer[:n]); verdict != downwardmetrics.Incomplete {
			rest = answerRest
			if err := answer(conn, verdict, document); err != nil {
				return err
			}
		}
		if !sleep(ctx, rest) {
			return ctx.Err()
		}
	}
}

func answer(conn net.Conn, verdict downwardmetrics.Verdict, document func() ([]byte, error)) error {
	text := downwardmetrics.Refusal()
	if verdict == downwardmetrics.Asked {
		current, err := document()
		if err != nil {
			return err
		}
		text = downwardmetrics.Answer(current)
	}
	_, err := conn.Write(text)
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// threadsOf returns each thread once: emulated CPUs share one.
func threadsOf(cpus vcpus.List) []int {
	var threads []int
	for _, cpu := range cpus {
		threads = append(threads, cpu.Thread)
	}
	slices.Sort(threads)
	return slices.Compact(threads)
}

// document omits unreadable figures of the host. It waits for QEMU without a timeout: an abandoned command could end the
// monitor.
func (m *metrics) document(ctx context.Context, monitor *qmp.Client, pid int) ([]byte, error) {
	figures := downwardmetrics.Figures{HostName: m.hostName, Processors: m.processors, Time: time.Now()}
	var version struct{ QEMU downwardmetrics.Version }
	var memory struct {
		Base    uint64 `json:"base-memory"`
		Plugged uint64 `json:"plugged-memory"`
	}
	var cpus vcpus.List
	err := monitor.ExecuteAll(ctx,
		qmp.Command{Name: "query-version", Result: &version},
		qmp.Command{Name: "query-memory-size-summary", Result: &memory},
		qmp.Command{Name: "query-cpus-fast", Result: &cpus})
	if err != nil {
		return nil, fmt.Errorf("asking QEMU: %w", err)
	}
	vm := &downwardmetrics.VM{VCPUs: len(cpus), Memory: (memory.Base + memory.Plugged) >> 10}
	for _, thread := range threadsOf(cpus) {
		// A CPU that was just unplugged has no thread.
		if text, err := read(strconv.Itoa(pid), "task", strconv.Itoa(thread), "stat"); err == nil {
			worked, _ := downwardmetrics.ThreadCPUTime(text)
			vm.CPUTime += worked
		}
	}
	figures.QEMU, figures.VM = version.QEMU, vm
	if text, err := read("stat"); err == nil {
		figures.CPUTime, _ = downwardmetrics.HostCPUTime(text)
	}
	if text, err := read("meminfo"); err == nil {
		figures.Memory, _ = downwardmetrics.HostMemory(text)
	}
	if text, err := read("vmstat"); err == nil {
		figures.Paging, _ = downwardmetrics.HostPaging(text, os.Getpagesize())
	}
	return figures.Document(), nil
}

// read returns the beginning of a file in /proc, enough for all figures.
func read(names ...string) (string, error) {
	f, err := os.Open(filepath.Join(append([]string{"/proc"}, names...)...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, metricsText))
	return string(text), err
}

func processors() int {
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id")
	if err != nil {
		return 0
	}
	packages := map[string]bool{}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			packages[strings.TrimSpace(string(text))] = true
		}
	}
	return len(packages)
}

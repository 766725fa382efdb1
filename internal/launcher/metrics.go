package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/downwardmetrics"
	"drydock.dev/drydock/internal/qemu/qmp"
)

const (
	// metricsEvery is how often the disk is written: as often as upstream does.
	metricsEvery = 5 * time.Second
	// metricsRead is how much is read from the channel at a time. It is left alone for readRest afterwards, and for
	// answerRest after an answer: a guest gets ten answers a second at most, and what it writes costs next to nothing.
	// A guest's kernel can have 4 MiB waiting, of which there are soon none left even so.
	metricsRead = 8 << 10
	readRest    = 10 * time.Millisecond
	answerRest  = 100 * time.Millisecond
	// metricsQueue is how much of what the guest has not read the kernel is to hold: an answer or two.
	metricsQueue = 4 << 10
	// metricsText is how much is read of a text of the kernel's.
	metricsText = 32 << 10
)

// metrics tells the guest figures of its host and of itself: by a disk, by a channel, or by both. It has a goroutine for
// each, which the end of QEMU ends. The guest can keep the channel's waiting for ever, and nothing else (decision 603).
type metrics struct {
	hostName string
	// disk is the file behind the guest's disk, nil for none. It is written by its descriptor: what QEMU's process
	// puts in the place of its name is not followed.
	disk *os.File
	// channel is the socket that QEMU listens on, "" for none.
	channel string
	// processors is how many physical ones the host has, 0 if that is not known.
	processors int
	// log takes sentences for virt-launcher's log.
	log func(string)
}

// newMetrics makes the disk, so that QEMU finds it. It is blank until QEMU has said what there is to be said of the guest.
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
	// What is there is of a container that has ended.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(downwardmetrics.DiskSize)
	if err == nil {
		err = put(f, downwardmetrics.Blank())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func put(f *os.File, w downwardmetrics.Write) error {
	_, err := f.WriteAt(w.Data, w.Offset)
	return err
}

// serveMetrics begins to tell the guest the figures, when QEMU has answered.
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

// keepDisk is the goroutine that writes the disk. What can't be written now may be the next time.
func (m *metrics) keepDisk(ctx context.Context, document func() ([]byte, error)) {
	defer m.disk.Close()
	var disk downwardmetrics.Disk
	failed := false
	for {
		err := m.writeDisk(&disk, document)
		// By then QEMU's end, which is no failure, is known.
		if !pause(ctx, metricsEvery) {
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
		if err := put(m.disk, w); err != nil {
			return err
		}
	}
	return nil
}

// serveChannel is the goroutine that answers the guest. A connection that ends before QEMU is made anew, after a while.
func (m *metrics) serveChannel(ctx context.Context, document func() ([]byte, error)) {
	for {
		conn, err := net.Dial("unix", m.channel)
		if err == nil {
			err = answerMetrics(ctx, conn, document)
		}
		if !pause(ctx, metricsEvery) {
			return
		}
		m.log(fmt.Sprintf("the channel of downward metrics: %v", err))
	}
}

// answerMetrics answers what the guest asks until the connection ends, and ends it with ctx. There is one answer at a
// time: while the guest does not read it, nothing more is read of the guest, and QEMU has it wait. Requests that are read
// together get one answer.
func answerMetrics(ctx context.Context, conn net.Conn, document func() ([]byte, error)) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if socket, ok := conn.(*net.UnixConn); ok {
		_ = socket.SetWriteBuffer(metricsQueue) // a larger one holds older answers, and no harm is done
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
		if !pause(ctx, rest) {
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

// pause waits, and reports whether ctx lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// document gathers the figures. Of the host's the ones that can't be read are left out; without an answer of QEMU's there
// is none. QEMU is waited for as long as it runs: a command that is given up could end the monitor.
func (m *metrics) document(ctx context.Context, monitor *qmp.Client, pid int) ([]byte, error) {
	figures := downwardmetrics.Figures{HostName: m.hostName, Processors: m.processors, Time: time.Now()}
	if err := askQEMU(ctx, monitor, pid, &figures); err != nil {
		return nil, err
	}
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

// askQEMU gathers what QEMU knows: its version, the guest's memory, and by which threads the guest's CPUs run.
func askQEMU(ctx context.Context, monitor *qmp.Client, pid int, figures *downwardmetrics.Figures) error {
	var version struct{ QEMU downwardmetrics.Version }
	var memory struct {
		Base    uint64 `json:"base-memory"`
		Plugged uint64 `json:"plugged-memory"`
	}
	var cpus []struct {
		Thread int `json:"thread-id"`
	}
	err := monitor.ExecuteAll(ctx,
		qmp.Command{Name: "query-version", Result: &version},
		qmp.Command{Name: "query-memory-size-summary", Result: &memory},
		qmp.Command{Name: "query-cpus-fast", Result: &cpus})
	if err != nil {
		return fmt.Errorf("asking QEMU: %w", err)
	}
	vm := &downwardmetrics.VM{VCPUs: len(cpus), Memory: (memory.Base + memory.Plugged) >> 10}
	for _, cpu := range cpus {
		// A CPU that is unplugged just now has no thread any more.
		if text, err := read(strconv.Itoa(pid), "task", strconv.Itoa(cpu.Thread), "stat"); err == nil {
			worked, _ := downwardmetrics.ThreadCPUTime(text)
			vm.CPUTime += worked
		}
	}
	figures.QEMU, figures.VM = version.QEMU, vm
	return nil
}

// read returns the beginning of a file in /proc, in which all is that is looked for.
func read(names ...string) (string, error) {
	f, err := os.Open(filepath.Join(append([]string{"/proc"}, names...)...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, metricsText))
	return string(text), err
}

// processors counts the host's physical processors, 0 if that is not known.
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

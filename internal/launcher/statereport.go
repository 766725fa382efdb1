package launcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/vcpus"
)

// maxReported bounds the drives and the jobs of a report, and maxStateAnswer the launcher's answer, in bytes.
const (
	maxReported    = 256
	maxStateAnswer = 256 << 10
)

// serveStates answers each connection with QEMU's state as JSON, or with nothing if QEMU does not run or does not answer.
func (l *launcher) serveStates(listener net.Listener) {
	var state asking
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if l.mayAsk() {
			l.answerState(conn, &state)
		}
		_ = conn.Close()
	}
}

// mayAsk reports whether QEMU runs and does not hand its guest over, which each query would delay.
func (l *launcher) mayAsk() bool {
	may := make(chan bool, 1)
	l.post(func() { may <- l.guest.started && l.exit == nil && !l.guest.handsOver() })
	select {
	case is := <-may:
		return is
	case <-l.ended:
		return false
	}
}

func (l *launcher) answerState(conn net.Conn, state *asking) {
	text := state.answer(l.spawn, l.ended, func() string {
		// It ends with QEMU's monitor.
		known, err := queryState(context.Background(), l.qemu.client)
		if err != nil {
			return ""
		}
		text, err := json.Marshal(known)
		if err != nil {
			return ""
		}
		return string(text)
	})
	// A diagnosis that is gone needs no answer.
	if text != "" && conn.SetDeadline(time.Now().Add(probePatience)) == nil {
		_, _ = io.WriteString(conn, text)
	}
}

// queryState asks nothing that virt-handler does not ask regularly.
func queryState(ctx context.Context, monitor *qmp.Client) (*launch.QEMUState, error) {
	var run, migration struct{ Status string }
	var cpus vcpus.List
	var drives []struct {
		Device   string `json:"qdev"`
		IOStatus string `json:"io-status"`
		Inserted struct {
			ReadOnly bool `json:"ro"`
		}
	}
	var jobs []launch.JobState
	err := monitor.ExecuteAll(ctx,
		qmp.Command{Name: "query-status", Result: &run},
		qmp.Command{Name: "query-migrate", Result: &migration},
		qmp.Command{Name: "query-cpus-fast", Result: &cpus},
		qmp.Command{Name: "query-block", Result: &drives},
		qmp.Command{Name: "query-jobs", Result: &jobs})
	if err != nil {
		return nil, fmt.Errorf("asking QEMU for its state: %w", err)
	}
	state := &launch.QEMUState{RunState: run.Status, Migration: migration.Status, CPUs: len(cpus), Jobs: jobs[:min(len(jobs), maxReported)]}
	for _, d := range drives[:min(len(drives), maxReported)] {
		state.Drives = append(state.Drives, launch.DriveState{Device: d.Device, IOStatus: d.IOStatus, ReadOnly: d.Inserted.ReadOnly})
	}
	return state, nil
}

// reporter prints the report of this pod.
type reporter struct {
	out               io.Writer
	proc, cgroup, dir string
}

func (r reporter) run(ctx context.Context) (int, error) {
	process, _, err := findQEMU(r.proc)
	if err != nil {
		return exitFailed, err
	}
	report := launch.Report{QEMU: r.askState(ctx), Process: processReport(process), Cgroup: cgroupReport(r.cgroup)}
	if err := json.NewEncoder(r.out).Encode(report); err != nil {
		return exitFailed, fmt.Errorf("printing the state: %w", err)
	}
	return exitOK, nil
}

// askState returns nil if the launcher or its QEMU does not answer in time.
func (r reporter) askState(ctx context.Context) *launch.QEMUState {
	ctx, cancel := context.WithTimeout(ctx, probePatience+afterthought)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(r.dir, layout.StateSocket))
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	state := &launch.QEMUState{}
	if err := json.NewDecoder(io.LimitReader(conn, maxStateAnswer)).Decode(state); err != nil {
		return nil
	}
	return state
}

func processReport(folder string) launch.ProcessReport {
	has := numbersOf(filepath.Join(folder, "status"))
	return launch.ProcessReport{ResidentKiB: has["VmRSS:"], SwappedKiB: has["VmSwap:"], Threads: has["Threads:"]}
}

// cgroupReport reads the container's own group, of version 2 or 1.
func cgroupReport(folder string) launch.CgroupReport {
	at := func(file string) string { return filepath.Join(folder, file) }
	one := func(file string) *uint64 {
		text, err := os.ReadFile(at(file))
		if err != nil {
			return nil
		}
		return number(string(bytes.TrimSpace(text)))
	}
	cpu := numbersOf(at("cpu.stat"))
	return launch.CgroupReport{
		MemoryBytes: cmp.Or(one("memory.current"), one("memory/memory.usage_in_bytes")), MemoryPeakBytes: cmp.Or(one("memory.peak"), one("memory/memory.max_usage_in_bytes")),
		OOMKills:              cmp.Or(numbersOf(at("memory.events"))["oom_kill"], numbersOf(at("memory/memory.oom_control"))["oom_kill"]),
		CPUMicroseconds:       cmp.Or(cpu["usage_usec"], micro(one("cpuacct/cpuacct.usage"))),
		ThrottledMicroseconds: cmp.Or(cpu["throttled_usec"], micro(numbersOf(at("cpu/cpu.stat"))["throttled_time"])),
	}
}

func micro(nanoseconds *uint64) *uint64 {
	if nanoseconds == nil {
		return nil
	}
	return new(*nanoseconds / 1000)
}

// numbersOf reads a file of the kernel with a name and a number in each line.
func numbersOf(file string) map[string]*uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	has := map[string]*uint64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			has[fields[0]] = number(fields[1])
		}
	}
	return has
}

func number(text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

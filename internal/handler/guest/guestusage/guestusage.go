// Package guestusage measures a running QEMU for metrics: its process, virtual CPUs, disks, network interfaces, and the
// guest's memory by the balloon. It trusts no figure: a guest may have taken QEMU over. It changes nothing in the guest
// but asks the balloon driver for its next report.
package guestusage

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/vcpus"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// Every is the shortest time between two measurements, however many scrape.
	Every = 10 * time.Second
	// keep is how long QEMU's figures count while it can't be asked.
	keep = time.Minute
)

// Meter measures a VMI's QEMU over all connections to it. It is safe for concurrent use.
type Meter struct {
	mu sync.Mutex
	// answers and threads belong to the QEMU with pid.
	pid int
	// asked is the time of answers and, if QEMU could be asked since, of last.
	asked   time.Time
	answers answers
	last    metrics.Usage
	dirty   dirtyRate
	threads threads
	totals  totals
}

// Subject has the arguments of Measure.
type Subject struct {
	QEMU *guest.Guest
	Spec *v1.VirtualMachineInstanceSpec
	Taps map[string]string // by interface
	Now  time.Time
}

// Measure returns figures no older than Every. The caller fills in the VMI's name, and must not change the lists.
func (m *Meter) Measure(ctx context.Context, s Subject) metrics.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age := s.Now.Sub(m.asked); age >= 0 && age < Every {
		return m.last
	}
	if pid := s.QEMU.PID(); pid != m.pid {
		m.pid, m.answers, m.threads.outer, m.dirty = pid, answers{}, nil, dirtyRate{}
	}
	// A handover that begins now waits for one round trip to QEMU, less than a millisecond.
	if s.QEMU.Measurable() {
		may := readable(s.Spec, m.last.Guest[metrics.Resident], s.QEMU.Observe().Migration)
		m.answers, m.asked = ask(ctx, s.QEMU, s.Spec, m.dirty.commands(s.Now, may)), s.Now
		m.dirty.read(s.Now)
	} else if s.Now.Sub(m.asked) > keep {
		m.answers = answers{}
	}
	m.last = m.usage(s)
	m.totals.add(&m.last)
	return m.last
}

// proc checks once that /proc is the kernel's.
var proc = sync.OnceValues(procfs.NewDefaultFS)

func (m *Meter) usage(s Subject) metrics.Usage {
	u := metrics.Usage{Drives: drivesOf(m.answers.drives, s.Spec.Domain.Devices.Disks)}
	u.Guest[metrics.Domain] = metrics.Known(float64(machine.GuestMemory(s.Spec)))
	m.answers.memory(&u.Guest, s.Now)
	u.Guest[metrics.DirtyRate] = m.dirty.at(s.Now)
	kernel, err := proc()
	if err != nil {
		return u
	}
	process, err := kernel.Proc(s.QEMU.PID())
	if err != nil {
		return u
	}
	processUsage(process, &u.Guest)
	if len(s.Taps) > 0 {
		if list, err := readKernelFile(filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(process.PID), "net", "dev")); err == nil {
			u.Interfaces = traffic(list, s.Taps)
		}
	}
	u.VCPUs = m.threads.usage(s.QEMU.PID(), m.answers.cpus, &u.Guest, s.Now)
	return u
}

// answers are QEMU's, zero if it did not answer.
type answers struct {
	drives  []blockStats
	cpus    vcpus.List
	balloon struct {
		Actual metrics.Figure `json:"actual"`
	}
	reported balloonReport
}

const (
	balloonPath     = "/machine/peripheral/" + machine.BalloonID
	balloonInterval = "guest-stats-polling-interval"
	// never is the longest interval in seconds, 68 years.
	never = 1<<31 - 1
)

// ask queries QEMU. It turns the balloon driver's regular reports off and on, which makes the driver send one; the next
// measurement reads it. A query that QEMU refuses is missing in the answers. It sends more commands, too.
func ask(ctx context.Context, g *guest.Guest, spec *v1.VirtualMachineInstanceSpec, more []qmp.Command) answers {
	var a answers
	commands := append(more,
		qmp.Command{Name: "query-blockstats", Result: &a.drives},
		qmp.Command{Name: "query-cpus-fast", Result: &a.cpus})
	if machine.HasBalloon(spec) {
		every := func(seconds int) map[string]any {
			return map[string]any{"path": balloonPath, "property": balloonInterval, "value": seconds}
		}
		commands = append(commands,
			qmp.Command{Name: "query-balloon", Result: &a.balloon},
			qmp.Command{Name: "qom-get", Args: map[string]any{"path": balloonPath, "property": "guest-stats"}, Result: &a.reported},
			qmp.Command{Name: "qom-set", Args: every(0)},
			qmp.Command{Name: "qom-set", Args: every(never)})
	}
	err := g.Monitor().ExecuteAll(ctx, commands...)
	if ctx.Err() != nil {
		// More queries would fill QEMU's socket: it must answer Refresh first.
		g.Invalidate()
	}
	if err != nil {
		g.Log().V(1).Info("QEMU did not answer all queries for metrics", "reason", err.Error())
	}
	return a
}

func processUsage(process procfs.Proc, u *metrics.Guest) {
	stat, err := process.Stat()
	if err != nil {
		return
	}
	const ticks = 100 // in a second, for all architectures of Linux
	user, system := float64(stat.UTime)/ticks, float64(stat.STime)/ticks
	u[metrics.UserCPU], u[metrics.SystemCPU] = metrics.Known(user), metrics.Known(system)
	u[metrics.CPU] = metrics.Known(user + system)
	u[metrics.Resident] = metrics.Known(float64(stat.ResidentMemory()))
}

// blockStats has plain numbers, which decode in half the time: every QEMU sends all.
type blockStats struct {
	Device string `json:"qdev"`
	Stats  struct {
		Reads      float64 `json:"rd_operations"`
		Writes     float64 `json:"wr_operations"`
		Flushes    float64 `json:"flush_operations"`
		ReadBytes  float64 `json:"rd_bytes"`
		WriteBytes float64 `json:"wr_bytes"`
		ReadTime   float64 `json:"rd_total_time_ns"`
		WriteTime  float64 `json:"wr_total_time_ns"`
		FlushTime  float64 `json:"flush_total_time_ns"`
	} `json:"stats"`
}

// drivesOf lists each disk once: a hostile QEMU must not invalidate the whole node's metrics by a duplicate.
func drivesOf(answer []blockStats, disks []v1.Disk) []metrics.Drive {
	byDevice := map[string]string{}
	for i := range disks {
		byDevice[machine.DiskID(disks[i].Name)] = disks[i].Name
	}
	var drives []metrics.Drive
	for i := range answer {
		// The device's path ends in its id, or, for virtio, in a part of it.
		for part := range strings.SplitSeq(answer[i].Device, "/") {
			name, ok := byDevice[part]
			if !ok {
				continue
			}
			delete(byDevice, part)
			drives = append(drives, answer[i].drive(name))
			break
		}
	}
	return drives
}

const nanosecond = 1e-9

func (b *blockStats) drive(name string) metrics.Drive {
	s, d := &b.Stats, metrics.Drive{Name: name}
	for i, value := range [...]float64{
		metrics.Reads: s.Reads, metrics.Writes: s.Writes, metrics.Flushes: s.Flushes,
		metrics.ReadBytes: s.ReadBytes, metrics.WriteBytes: s.WriteBytes,
		metrics.ReadSeconds: s.ReadTime * nanosecond, metrics.WriteSeconds: s.WriteTime * nanosecond, metrics.FlushSeconds: s.FlushTime * nanosecond,
	} {
		d.Figures[i] = metrics.Known(value)
	}
	return d
}

// traffic returns the taps' counters from the kernel's list of a network namespace. A tap receives the data that the guest
// sends.
func traffic(list []byte, taps map[string]string) []metrics.Interface {
	byTap := make(map[string]string, len(taps))
	for name, tap := range taps {
		byTap[tap] = name
	}
	var found []metrics.Interface
	for line := range bytes.Lines(list) {
		device, counters, _ := bytes.Cut(line, []byte(":"))
		name, ok := byTap[string(bytes.TrimSpace(device))]
		if fields := bytes.Fields(counters); ok && len(fields) == netColumns {
			i := metrics.Interface{Name: name}
			for at, column := range netColumn {
				if value, err := strconv.ParseFloat(string(fields[column]), 64); err == nil {
					i.Figures[at] = metrics.Known(value)
				}
			}
			found = append(found, i)
		}
	}
	return found
}

// netColumns is the number of the list's columns, netColumn the column of each figure.
const netColumns = 16

var netColumn = [...]int{
	metrics.SentBytes: 0, metrics.SentPackets: 1, metrics.SendErrors: 2, metrics.SendDrops: 3,
	metrics.ReceivedBytes: 8, metrics.ReceivedPackets: 9, metrics.ReceiveErrors: 10, metrics.ReceiveDrops: 11,
}

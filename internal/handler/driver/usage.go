package driver

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/machine"
)

// Usage measures all guests that run, side by side.
func (s *Supervisor) Usage(ctx context.Context) []metrics.Usage {
	s.mu.Lock()
	var running []*Machine
	for _, d := range s.drivers {
		if m, err := d.machine(); err == nil {
			running = append(running, m)
		}
	}
	s.mu.Unlock()
	usages := make([]metrics.Usage, len(running))
	var asking sync.WaitGroup
	for i, m := range running {
		asking.Go(func() { usages[i] = m.usage(ctx) })
	}
	asking.Wait()
	return usages
}

func (m *Machine) usage(ctx context.Context) metrics.Usage {
	u := metrics.Usage{
		Namespace: m.vmi.Namespace, Name: m.vmi.Name, GuestBytes: float64(machine.GuestMemory(&m.vmi.Spec)),
		Drives: m.drives(ctx), Interfaces: m.traffic(),
	}
	// A process that has just ended has no figures.
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.guest.pid)); err == nil {
		u.CPUSeconds, u.ResidentBytes = processUsage(string(stat), os.Getpagesize())
	}
	return u
}

// ticks is how many of the clock ticks in /proc make a second; the kernel's
// interface has had this one figure on every architecture that runs KVM.
const ticks = 100

// processUsage reads proc_pid_stat(5): CPU seconds and resident bytes.
func processUsage(stat string, pageSize int) (cpu, resident float64) {
	// The program's name, in parentheses, may hold anything.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const utime, stime, rss = 11, 12, 21 // of the fields after the name
	if len(fields) <= rss {
		return 0, 0
	}
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(fields[i], 64) // the kernel writes numbers
		return n
	}
	return (number(utime) + number(stime)) / ticks, number(rss) * float64(pageSize)
}

// blockStats is what QEMU counts of one device.
type blockStats struct {
	Device string `json:"qdev"`
	Stats  struct {
		Reads      float64 `json:"rd_operations"`
		Writes     float64 `json:"wr_operations"`
		Flushes    float64 `json:"flush_operations"`
		ReadBytes  float64 `json:"rd_bytes"`
		WriteBytes float64 `json:"wr_bytes"`
		// In nanoseconds.
		ReadTime  float64 `json:"rd_total_time_ns"`
		WriteTime float64 `json:"wr_total_time_ns"`
		FlushTime float64 `json:"flush_total_time_ns"`
	} `json:"stats"`
}

// drives asks QEMU; a QEMU that does not answer has no figures.
func (m *Machine) drives(ctx context.Context) []metrics.Drive {
	var answer []blockStats
	if err := m.guest.monitor.Execute(ctx, "query-blockstats", nil, &answer); err != nil {
		return nil
	}
	return drivesOf(answer, m.vmi.Spec.Domain.Devices.Disks)
}

// drivesOf are the figures of the VMI's disks, each once: a QEMU in a guest's
// hands that tells one twice must not make the whole node's metrics invalid.
func drivesOf(answer []blockStats, disks []v1.Disk) []metrics.Drive {
	byDevice := map[string]string{}
	for i := range disks {
		byDevice[machine.DiskID(disks[i].Name)] = disks[i].Name
	}
	var drives []metrics.Drive
	for _, a := range answer {
		// The device's path ends in its id, or, for virtio, in a part of it.
		for part := range strings.SplitSeq(a.Device, "/") {
			name, ok := byDevice[part]
			if !ok {
				continue
			}
			delete(byDevice, part)
			drives = append(drives, metrics.Drive{
				Name: name, Reads: a.Stats.Reads, Writes: a.Stats.Writes, Flushes: a.Stats.Flushes,
				ReadBytes: a.Stats.ReadBytes, WriteBytes: a.Stats.WriteBytes,
				ReadSeconds: a.Stats.ReadTime / 1e9, WriteSeconds: a.Stats.WriteTime / 1e9, FlushSeconds: a.Stats.FlushTime / 1e9,
			})
			break
		}
	}
	return drives
}

// traffic reads the taps' counters in the pod's network namespace, which QEMU's
// process is in.
func (m *Machine) traffic() []metrics.Interface {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", m.guest.pid))
	if err != nil {
		return nil
	}
	counters := linkCounters(string(text))
	var list []metrics.Interface
	for name, tap := range m.taps {
		if c, ok := counters[tap]; ok {
			c.Name = name
			list = append(list, c)
		}
	}
	return list
}

// linkCounters reads /proc/net/dev. What a tap receives is what the guest sends.
func linkCounters(text string) map[string]metrics.Interface {
	counters := map[string]metrics.Interface{}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		// Each direction counts bytes, packets, errors, dropped packets and four more.
		const received, sent, all = 0, 8, 16
		if !found || len(fields) < all {
			continue
		}
		number := func(i int) float64 {
			n, _ := strconv.ParseFloat(fields[i], 64) // the kernel writes numbers
			return n
		}
		counters[strings.TrimSpace(name)] = metrics.Interface{
			SentBytes: number(received), SentPackets: number(received + 1),
			SendErrors: number(received + 2), SendDrops: number(received + 3),
			ReceivedBytes: number(sent), ReceivedPackets: number(sent + 1),
			ReceiveErrors: number(sent + 2), ReceiveDrops: number(sent + 3),
		}
	}
	return counters
}

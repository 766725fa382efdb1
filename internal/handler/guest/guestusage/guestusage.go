// Package guestusage measures a running QEMU for virt-handler's metrics: its process, its disks and its network
// interfaces. It changes nothing, and trusts no figure: a guest may have taken QEMU over.
package guestusage

import (
	"context"
	"strings"

	"github.com/prometheus/procfs"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/rules/machine"
)

// Of returns the figures of QEMU's process, disks and taps, which are given by interface. The caller fills in the VMI's
// name and memory. Any goroutine may call it.
func Of(ctx context.Context, g *guest.Guest, disks []v1.Disk, taps map[string]string) metrics.Usage {
	var u metrics.Usage
	var answer []blockStats
	if err := g.Monitor().Execute(ctx, "query-blockstats", nil, &answer); err == nil {
		u.Drives = drivesOf(answer, disks)
	}
	if process, err := procfs.NewProc(g.PID()); err == nil {
		u.CPUSeconds, u.ResidentBytes = processUsage(process)
		u.Interfaces = traffic(process, taps)
	}
	return u
}

func processUsage(process procfs.Proc) (cpu, resident float64) {
	stat, err := process.Stat()
	if err != nil {
		return 0, 0
	}
	return stat.CPUTime(), float64(stat.ResidentMemory())
}

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

// drivesOf lists each disk once: a QEMU that its guest has taken over must not make the whole node's metrics invalid by
// a duplicate.
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

// traffic returns the counters of the taps in a process's network namespace. A tap receives the data that the guest
// sends.
func traffic(process procfs.Proc, taps map[string]string) []metrics.Interface {
	devices, err := process.NetDev()
	if err != nil {
		return nil
	}
	var list []metrics.Interface
	for name, tap := range taps {
		device, ok := devices[tap]
		if !ok {
			continue
		}
		list = append(list, metrics.Interface{
			Name:      name,
			SentBytes: float64(device.RxBytes), SentPackets: float64(device.RxPackets),
			SendErrors: float64(device.RxErrors), SendDrops: float64(device.RxDropped),
			ReceivedBytes: float64(device.TxBytes), ReceivedPackets: float64(device.TxPackets),
			ReceiveErrors: float64(device.TxErrors), ReceiveDrops: float64(device.TxDropped),
		})
	}
	return list
}

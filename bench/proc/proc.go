// Package proc reads the CPU time, memory and start time of processes.
//
// It reads /proc of this machine, which includes the processes of the embedded cluster's pods. All
// that it knows of Kubernetes is that the cgroups of a pod's processes contain its UID. It uses
// package procfs, which lacks the memory of one mapping, a start to a hundredth of a second, and a
// process's children.
package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the kernel's unit of CPU time in /proc, the same on all architectures.
const tick = 10 * time.Millisecond

// Process is a process with its command line.
type Process struct {
	PID  int
	Args []string
}

// Name returns the program's name.
func (p Process) Name() string { return filepath.Base(p.Args[0]) }

// OfPod returns a pod's processes, including the sandbox's pause.
func OfPod(uid string) ([]Process, error) {
	return find(func(cgroup string) bool {
		return strings.Contains(cgroup, uid) || strings.Contains(cgroup, strings.ReplaceAll(uid, "-", "_"))
	})
}

// ByArgs returns the processes whose command line contains a text.
func ByArgs(text string) ([]Process, error) {
	all, err := find(func(string) bool { return true })
	return slices.DeleteFunc(all, func(p Process) bool { return !strings.Contains(strings.Join(p.Args, " "), text) }), err
}

func find(in func(path string) bool) ([]Process, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []Process
	for _, p := range all {
		// Skip a process that has ended.
		cgroups, err := p.Cgroups()
		if err != nil || !slices.ContainsFunc(cgroups, func(c procfs.Cgroup) bool { return in(c.Path) }) {
			continue
		}
		if args, err := p.CmdLine(); err == nil && len(args) > 0 {
			out = append(out, Process{p.PID, args})
		}
	}
	return out, nil
}

// CPU returns a process's CPU time so far.
func CPU(pid int) (time.Duration, error) {
	stat, err := statOf(pid)
	return time.Duration(stat.UTime+stat.STime) * tick, err
}

// Started returns the start of a process, to a hundredth of a second.
func Started(pid int) (time.Time, error) {
	stat, err := statOf(pid)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, fmt.Errorf("reading how long the machine is up: %w", err)
	}
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading how long the machine is up: %w", err)
	}
	boot := now.Add(-time.Duration(up * float64(time.Second)))
	return boot.Add(time.Duration(stat.Starttime) * tick), nil
}

// Parent returns the parent process.
func Parent(pid int) (int, error) {
	stat, err := statOf(pid)
	return stat.PPID, err
}

func statOf(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("reading what process %d has used: %w", pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("reading what process %d has used: %w", pid, err)
	}
	return stat, nil
}

// Memory is in KiB.
type Memory struct {
	// A page that several processes map counts in parts for PSS, and fully for RSS.
	PSS, RSS int
}

// MemoryOf reads a process's memory.
func MemoryOf(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	sum, err := process.ProcSMapsRollup()
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return Memory{PSS: int(sum.Pss >> 10), RSS: int(sum.Rss >> 10)}, nil
}

// PageTables returns the size of a process's page tables in KiB.
func PageTables(pid int) (int, error) {
	status, err := statusOf(pid)
	return int(status.VmPTE >> 10), err
}

func statusOf(pid int) (procfs.ProcStatus, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStatus{}, fmt.Errorf("reading the status of process %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return procfs.ProcStatus{}, fmt.Errorf("reading the status of process %d: %w", pid, err)
	}
	return status, nil
}

// GuestRAM returns the resident part of a guest's RAM in QEMU. The mapping has that size, or 8 KiB more if QEMU
// emulates the machine (decision 302).
func GuestRAM(pid int, sizeKiB int) (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the mappings of process %d: %w", pid, err)
	}
	var found *Memory
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Size:"); ok {
			found = nil
			if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB")); err == nil && (kib == sizeKiB || kib == sizeKiB+8) {
				found = &Memory{}
			}
		}
		if found == nil {
			continue
		}
		found.add(line)
		if strings.HasPrefix(line, "VmFlags:") {
			return *found, nil
		}
	}
	return Memory{}, fmt.Errorf("looking for the guest's RAM: process %d has no mapping of %d KiB, nor of 8 KiB more", pid, sizeKiB)
}

func (m *Memory) add(line string) {
	name, rest, _ := strings.Cut(line, ":")
	kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
	if err != nil {
		return
	}
	switch name {
	case "Pss":
		m.PSS += kib
	case "Rss":
		m.RSS += kib
	}
}

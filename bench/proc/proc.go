// Package proc reads what processes cost: CPU time, memory, and when they were
// started.
//
// It reads /proc of this machine, which sees the processes of the embedded
// cluster's pods, too. It knows nothing of Kubernetes but that a pod's processes
// are in cgroups whose names contain its UID. Package procfs reads what it covers:
// not the memory of one mapping, a start to a hundredth of a second, nor the
// children of a process.
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

// tick is the kernel's unit of CPU time in /proc; it is the same everywhere.
const tick = 10 * time.Millisecond

// Process is one process.
type Process struct {
	PID  int
	Args []string
}

// Name is the name of the program.
func (p Process) Name() string { return filepath.Base(p.Args[0]) }

// OfPod are the processes of a pod. Its sandbox's own (pause) is one of them.
func OfPod(uid string) ([]Process, error) {
	return find(func(cgroup string) bool {
		return strings.Contains(cgroup, uid) || strings.Contains(cgroup, strings.ReplaceAll(uid, "-", "_"))
	})
}

// ByArgs are the processes whose command line has a text in it.
func ByArgs(text string) ([]Process, error) {
	all, err := find(func(string) bool { return true })
	return slices.DeleteFunc(all, func(p Process) bool { return !strings.Contains(strings.Join(p.Args, " "), text) }), err
}

// find returns the processes with a cgroup of the given paths.
func find(in func(path string) bool) ([]Process, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []Process
	for _, p := range all {
		// A process that ends meanwhile is none.
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

// CPU is the CPU time that a process has used so far.
func CPU(pid int) (time.Duration, error) {
	stat, err := statOf(pid)
	return time.Duration(stat.UTime+stat.STime) * tick, err
}

// Started is when a process was started, to a hundredth of a second.
func Started(pid int) (time.Time, error) {
	stat, err := statOf(pid)
	if err != nil {
		return time.Time{}, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, fmt.Errorf("reading how long the machine is up: %w", err)
	}
	now := time.Now()
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading how long the machine is up: %w", err)
	}
	boot := now.Add(-time.Duration(up * float64(time.Second)))
	return boot.Add(time.Duration(stat.Starttime) * tick), nil
}

// Parent is the process that a process belongs to.
func Parent(pid int) (int, error) {
	stat, err := statOf(pid)
	return stat.PPID, err
}

// statOf is what the kernel counts of a process.
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

// Memory is what a process has in memory, in KiB.
type Memory struct {
	// PSS is the proportional set: a page that several processes map counts in
	// parts. RSS counts it fully.
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

// PageTables is what the kernel has for a process's page tables, in KiB.
func PageTables(pid int) (int, error) {
	status, err := statusOf(pid)
	return int(status.VmPTE >> 10), err
}

// statusOf is what the kernel says of a process's memory.
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

// GuestRAM is the memory of the mapping that has a guest's RAM in QEMU: what of it the guest has
// touched. The mapping has the size of the guest's memory, or 8 KiB more where QEMU emulates the
// machine (decision 302).
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

// add counts a line of the mapping.
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

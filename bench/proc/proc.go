// Package proc reads what processes cost: CPU time, memory, and when they were
// started.
//
// It reads /proc of this machine, which sees the processes of the embedded
// cluster's pods, too. It knows nothing of Kubernetes but that a pod's processes
// are in cgroups whose names contain its UID.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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

func find(in func(cgroup string) bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that ends meanwhile is none.
		cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !in(string(cgroup)) {
			continue
		}
		if args := commandLine(pid); len(args) > 0 {
			out = append(out, Process{pid, args})
		}
	}
	return out, nil
}

func commandLine(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(data, "\x00")), "\x00")
}

// CPU is the CPU time that a process has used so far.
func CPU(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// Started is when a process was started, to a hundredth of a second.
func Started(pid int) (time.Time, error) {
	fields, err := stat(pid)
	if err != nil {
		return time.Time{}, err
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the start of process %d: %w", pid, err)
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
	return boot.Add(time.Duration(ticks) * tick), nil
}

// stat are the fields of /proc/PID/stat behind the program's name.
func stat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("reading what process %d has used: %w", pid, err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("reading what process %d has used: %q", pid, data)
	}
	return fields, nil
}

// Memory is what a process has in memory, in KiB.
type Memory struct {
	// PSS is the proportional set: a page that several processes map counts in
	// parts. RSS counts it fully.
	PSS, RSS int
}

// MemoryOf reads a process's memory.
func MemoryOf(pid int) (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	var m Memory
	for line := range strings.Lines(string(data)) {
		m.add(line)
	}
	return m, nil
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

// Mapping is the memory of the mapping of exactly a size, which the guest's RAM
// is in QEMU: what of it the guest has touched.
func Mapping(pid int, sizeKiB int) (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the mappings of process %d: %w", pid, err)
	}
	var found *Memory
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Size:"); ok {
			found = nil
			if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB")); err == nil && kib == sizeKiB {
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
	return Memory{}, fmt.Errorf("looking for the guest's RAM: process %d has no mapping of %d KiB", pid, sizeKiB)
}

// PageTables is what the kernel has for a process's page tables, in KiB.
func PageTables(pid int) (int, error) {
	kib, ok := statusKiB(pid, "VmPTE")
	if !ok {
		return 0, fmt.Errorf("reading the page tables of process %d: its status does not tell", pid)
	}
	return int(kib), nil
}

// Parent is the process that a process belongs to.
func Parent(pid int) (int, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, fmt.Errorf("reading the parent of process %d: %w", pid, err)
	}
	return parent, nil
}

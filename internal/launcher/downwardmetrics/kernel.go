package downwardmetrics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// HostCPUTime returns the host's CPU time from /proc/stat: that of programs (with guests), of programs with low
// priority, and of the kernel.
func HostCPUTime(stat string) (CPUTime, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with the CPUs' time")
	}
	return ticks(fields[1:4])
}

// ThreadCPUTime parses a thread's stat file.
func ThreadCPUTime(stat string) (CPUTime, error) {
	// The second field is the name, in parentheses, which the thread can choose.
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	// Fields 14 and 15, counted from the third here.
	if end < 0 || len(fields) < 13 {
		return 0, errors.New("a thread's stat file has too few fields")
	}
	return ticks(fields[11:13])
}

func ticks(fields []string) (CPUTime, error) {
	var sum CPUTime
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 53)
		if err != nil {
			return 0, fmt.Errorf("reading a CPU time: %w", err)
		}
		sum += CPUTime(n)
	}
	return sum, nil
}

// HostMemory parses /proc/meminfo.
func HostMemory(meminfo string) (*Memory, error) {
	has, err := table(meminfo, "MemTotal:", "MemFree:", "Buffers:", "Cached:", "SwapCached:", "SwapTotal:", "SwapFree:")
	if err != nil {
		return nil, err
	}
	used := less(has["MemTotal:"], has["MemFree:"]+has["Buffers:"]+has["Cached:"])
	return &Memory{
		Free: has["MemFree:"], FreeVirtual: has["MemFree:"] + has["SwapFree:"],
		Used: used, UsedVirtual: less(used+has["SwapTotal:"], has["SwapFree:"]+has["SwapCached:"]),
	}, nil
}

// HostPaging parses /proc/vmstat, which counts pages of pageSize bytes.
func HostPaging(vmstat string, pageSize int) (*Paging, error) {
	has, err := table(vmstat, "pswpin", "pswpout")
	if err != nil {
		return nil, err
	}
	kibi := uint64(pageSize) >> 10
	return &Paging{In: has["pswpin"] * kibi, Out: has["pswpout"] * kibi}, nil
}

func table(text string, names ...string) (map[string]uint64, error) {
	has := make(map[string]uint64, len(names))
	for _, name := range names {
		has[name] = 0 // a kernel without it
	}
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if _, wanted := has[fields[0]]; !wanted {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 53)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", fields[0], err)
		}
		has[fields[0]], found = n, true
	}
	if !found {
		return nil, fmt.Errorf("there is none of %s", strings.Join(names, ", "))
	}
	return has, nil
}

// The figures are from different moments: less is never negative.
func less(a, b uint64) uint64 { return a - min(a, b) }

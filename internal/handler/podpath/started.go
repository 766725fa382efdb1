package podpath

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit of times in /proc/PID/stat (USER_HZ), the same on all of Linux' architectures with KVM.
const ticksPerSecond = 100

// Started returns when the process was started, to a hundredth of a second.
func (p *Peer) Started(now time.Time) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the start of process %d: %w", p.PID, err)
	}
	if err := p.Alive(); err != nil {
		return time.Time{}, err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("reading the time since the node's start: %w", err)
	}
	since, err := startTicks(string(stat))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the start of process %d: %w", p.PID, err)
	}
	age := time.Duration(up.Nano()) - time.Duration(since)*(time.Second/ticksPerSecond)
	return now.Add(-max(0, age)), nil
}

// startTicks returns field 22 of /proc/PID/stat. The process chooses the second one, in parentheses.
func startTicks(stat string) (int64, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const at = 22 - 3 // the first here is the third
	if len(fields) <= at {
		return 0, fmt.Errorf("%d fields are too few", len(fields))
	}
	ticks, err := strconv.ParseInt(fields[at], 10, 64)
	if err != nil {
		return 0, err
	}
	return min(ticks, maxTicks), nil
}

// maxTicks is a hundred years, which a Duration can hold.
const maxTicks = 100 * 366 * 24 * 3600 * ticksPerSecond

package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Peak returns the peak resident memory of a process and its children in bytes, sampled until the
// context ends.
func Peak(ctx context.Context, pid int) int64 {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var most int64
	for {
		sum := highWater(pid)
		for _, child := range children(pid) {
			sum += highWater(child)
		}
		most = max(most, sum)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return most
		}
	}
}

func children(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, child := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(child); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// highWater returns the peak resident memory of a process in bytes, 0 after its end.
func highWater(pid int) int64 {
	status, err := statusOf(pid)
	if err != nil {
		return 0
	}
	return int64(status.VmHWM)
}

package guestusage

import (
	"bytes"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/vcpus"
)

// findPause bounds the searches for threads: a hostile QEMU may name others.
const findPause = time.Minute

// threads maps the numbers of QEMU's threads in the container to those on the node.
type threads struct {
	outer map[int]int
	found time.Time
}

// usage returns the figures of the virtual CPUs and adds their affinity. CPUs that share a thread, as emulated
// ones do, have equal parts of its figures.
func (t *threads) usage(pid int, cpus vcpus.List, u *metrics.Guest, now time.Time) []metrics.VCPU {
	if len(cpus) == 0 {
		return nil
	}
	process := filepath.Join("/proc", strconv.Itoa(pid), "task")
	if !t.have(cpus) && now.Sub(t.found) >= findPause {
		t.outer, t.found = podpath.ThreadsOf(pid), now
	}
	list := make([]metrics.VCPU, 0, len(cpus))
	affinity := 0
	shared, of := map[int]float64{}, make([]int, 0, len(cpus))
	for _, c := range cpus {
		thread, known := t.outer[c.Thread]
		if !known {
			continue
		}
		text, err := readKernelFile(filepath.Join(process, strconv.Itoa(thread), "schedstat"))
		if err != nil {
			delete(t.outer, c.Thread) // it has ended, and another may get its number
			continue
		}
		v := metrics.VCPU{ID: c.Index}
		v.Seconds, v.Delay = schedule(text)
		list, of = append(list, v), append(of, thread)
		shared[thread]++
		var may unix.CPUSet
		if err := unix.SchedGetaffinity(thread, &may); err == nil {
			affinity += may.Count()
		}
	}
	for i := range list {
		part := 1 / shared[of[i]]
		list[i].Seconds, list[i].Delay = list[i].Seconds.Times(part), list[i].Delay.Times(part)
	}
	if len(list) > 0 {
		u[metrics.Affinity] = metrics.Known(float64(affinity))
	}
	return list
}

func (t *threads) have(cpus vcpus.List) bool {
	for _, c := range cpus {
		if _, known := t.outer[c.Thread]; !known {
			return false
		}
	}
	return true
}

// schedule reads the time on a CPU and the time in a queue for one, in nanoseconds.
func schedule(text []byte) (seconds, delay metrics.Figure) {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return
	}
	for i, f := range []*metrics.Figure{&seconds, &delay} {
		if value, err := strconv.ParseFloat(string(fields[i]), 64); err == nil {
			*f = metrics.Known(value).Times(nanosecond)
		}
	}
	return seconds, delay
}

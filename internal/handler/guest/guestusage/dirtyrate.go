package guestusage

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// rateEvery is the shortest time between two measurements of the dirty rate, each of which reads 2 MiB of a GiB twice.
	rateEvery = time.Minute
	// rateSeconds is how long QEMU waits between the two.
	rateSeconds = 1
	mebibyte    = 1 << 20
)

// dirtyRate has QEMU measure how much of its memory the guest changes in a second. The zero value is ready to use.
type dirtyRate struct {
	begun   time.Time // the last measurement
	awaited bool      // its result
	rate    metrics.Figure
	answer  dirtyRateAnswer
}

type dirtyRateAnswer struct {
	Status string         `json:"status"`
	Rate   metrics.Figure `json:"dirty-rate"` // in MiB
}

// commands returns those that read a result that is due, and that begin a measurement.
func (d *dirtyRate) commands(now time.Time, may bool) (list []qmp.Command) {
	if d.awaited {
		d.answer = dirtyRateAnswer{}
		list = append(list, qmp.Command{Name: "query-dirty-rate", Result: &d.answer})
	}
	if age := now.Sub(d.begun); may && (age < 0 || age >= rateEvery) {
		list = append(list, qmp.Command{Name: "calc-dirty-rate", Args: map[string]any{"calc-time": rateSeconds}})
		d.begun = now
	}
	return list
}

// read takes over the answers to the commands of a time.
func (d *dirtyRate) read(now time.Time) {
	if d.awaited && d.answer.Status == "measured" {
		d.awaited, d.rate = false, d.answer.Rate.Times(mebibyte)
	}
	d.awaited = d.awaited || d.begun.Equal(now)
}

// at returns the rate, if it is not older than two measurements.
func (d *dirtyRate) at(now time.Time) metrics.Figure {
	if age := now.Sub(d.begun); age < 0 || age > 2*rateEvery {
		return metrics.Figure{}
	}
	return d.rate
}

// readable reports whether reading any of the guest's memory costs the node nothing: a page that the guest has never used would
// be allocated, or would keep the kernel from using a large page there. A measurement must not last into a handover, either.
func readable(spec *v1.VirtualMachineInstanceSpec, resident metrics.Figure, moves guest.Migration) bool {
	if moves.UnderWay() {
		return false
	}
	if spec.Domain.Memory != nil && spec.Domain.Memory.Hugepages != nil {
		return true
	}
	size := machine.GuestMemory(spec)
	value, known := resident.Value()
	return known && value >= float64(size+machine.MemoryRoom(spec, size))
}

package guestusage

import (
	"strconv"

	"drydock.dev/drydock/internal/handler/metrics"
)

// totals make counters that never go back: a device that is plugged again begins with zero, as does a rebooted guest.
type totals map[totalKey]total

// maxTotals bounds the totals. It is more than a guest has at one time; beyond it, those of removed devices are dropped.
const maxTotals = 4096

type totalKey struct {
	kind  byte // 'g' for the guest, else a device's
	name  string
	index int
}

type total struct{ before, last float64 }

func (t total) at(value float64) total {
	if value < t.last {
		t.before += t.last
	}
	t.last = value
	return t
}

// ofGuest lists the counters among a guest's figures.
var ofGuest = []int{metrics.MajorFaults, metrics.MinorFaults, metrics.CPU, metrics.UserCPU, metrics.SystemCPU}

// add replaces the counters in u by their totals.
func (t *totals) add(u *metrics.Usage) {
	old := *t
	if len(old) > maxTotals {
		*t = totals{}
	} else if old == nil {
		*t = totals{}
	}
	count := func(f *metrics.Figure, key totalKey) {
		value, known := f.Value()
		if !known {
			return
		}
		now := old[key].at(value)
		(*t)[key] = now
		*f = metrics.Known(now.before + now.last)
	}
	for _, i := range ofGuest {
		count(&u.Guest[i], totalKey{'g', "", i})
	}
	for i := range u.VCPUs {
		id := strconv.Itoa(u.VCPUs[i].ID)
		count(&u.VCPUs[i].Seconds, totalKey{'c', id, 0})
		count(&u.VCPUs[i].Delay, totalKey{'c', id, 1})
	}
	for i := range u.Drives {
		for j := range u.Drives[i].Figures {
			count(&u.Drives[i].Figures[j], totalKey{'d', u.Drives[i].Name, j})
		}
	}
	for i := range u.Interfaces {
		for j := range u.Interfaces[i].Figures {
			count(&u.Interfaces[i].Figures[j], totalKey{'i', u.Interfaces[i].Name, j})
		}
	}
}

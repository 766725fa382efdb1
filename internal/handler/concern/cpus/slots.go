package cpus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// unplugPatience is how long a guest may take to release CPUs before it is asked again. A cooperating system needs less
// than a second, an emulated one a few.
const unplugPatience = 15 * time.Second

const (
	ostEvent     = "ACPI_DEVICE_OST"
	deletedEvent = "DEVICE_DELETED"
	slotTypeCPU  = "CPU"
)

// These are a guest's answers to a request to eject a device (_OST, ACPI 6.5, 6.3.5).
const (
	ostEjectRequest    = 3
	ostSuccess         = 0
	ostEjectInProgress = 0x84
)

type slot struct {
	// Driver and Props are arguments of device_add.
	Driver string           `json:"type"`
	Props  map[string]int64 `json:"props"`
	// Path is empty without a CPU.
	Path string `json:"qom-path"`
}

// position orders slots as the guest numbers its CPUs.
func (s slot) position() [4]int64 {
	return [4]int64{s.Props["socket-id"], s.Props["die-id"], s.Props["core-id"], s.Props["thread-id"]}
}

func (s slot) id() string {
	p := s.position()
	return fmt.Sprintf("cpu-%d-%d-%d-%d", p[0], p[1], p[2], p[3])
}

// Seen is the state of the guest's virtual CPUs. Its slots are not modified.
type Seen struct {
	inquiry concern.Inquiry
	slots   []slot
	// They are when the guest was first and last asked to release CPUs that it still has; zero if it may keep all.
	since, asked time.Time
	refused      int64 // the status of its refusal, 0 for none
}

func (v Seen) count() int {
	n := 0
	for _, s := range v.slots {
		if s.Path != "" {
			n++
		}
	}
	return n
}

// A change in the number of CPUs ends an earlier request.
func (v Seen) with(slots []slot) Seen {
	slices.SortFunc(slots, func(a, b slot) int {
		p, q := a.position(), b.position()
		return slices.Compare(p[:], q[:])
	})
	next := v
	if next.slots = slots; next.count() != v.count() {
		next.since, next.asked, next.refused = time.Time{}, time.Time{}, 0
	}
	return next
}

// changes returns the CPUs to plug or unplug to reach want: the first free slots, or the last CPUs, never the first.
func (v Seen) changes(want int) (plug, unplug []slot) {
	missing := want - v.count()
	for _, s := range v.slots {
		if missing > 0 && s.Path == "" {
			plug, missing = append(plug, s), missing-1
		}
	}
	for i := len(v.slots) - 1; i > 0 && missing < 0; i-- {
		if s := v.slots[i]; s.Path != "" {
			unplug, missing = append(unplug, s), missing+1
		}
	}
	return plug, unplug
}

// withWanted returns the state for a wanted number of CPUs, 0 for no change. If the guest may keep all CPUs, the earlier
// request is forgotten: its answer does not apply to a later one.
func (v Seen) withWanted(want int) Seen {
	if want == 0 || want >= v.count() {
		v.since, v.asked, v.refused = time.Time{}, time.Time{}, 0
	}
	return v
}

// after is the delay if it is too early.
func (v Seen) due(want int, now time.Time) (is bool, after time.Duration) {
	plug, unplug := v.changes(want)
	switch {
	case v.count() == 0 || len(plug)+len(unplug) == 0:
		return false, 0
	case len(plug) > 0 || v.asked.IsZero():
		return true, 0
	}
	left := v.asked.Add(unplugPatience).Sub(now)
	return left <= 0, max(left, 0)
}

func (v Seen) problem(now time.Time) string {
	switch {
	case v.since.IsZero():
		return ""
	case v.refused != ostSuccess:
		return fmt.Sprintf("the guest does not give its CPUs back: its system refuses to (status %#x); it is asked again and again", v.refused)
	case now.Sub(v.since) < unplugPatience:
		return ""
	}
	return fmt.Sprintf("the guest does not give its CPUs back: its system has not answered for %v; it is asked again and again", unplugPatience)
}

func (v Seen) handleEvent(e qmp.Event) (next Seen, news bool) {
	switch e.Name {
	case deletedEvent:
		news = v.inquiry.Invalidate()
		return v, news
	case ostEvent:
		var said struct {
			Info struct {
				Kind   string `json:"slot-type"`
				Source int64  `json:"source"`
				Status int64  `json:"status"`
			} `json:"info"`
		}
		if json.Unmarshal(e.Data, &said) != nil || said.Info.Kind != slotTypeCPU || said.Info.Source&0xff != ostEjectRequest ||
			said.Info.Status == ostEjectInProgress || v.asked.IsZero() || said.Info.Status == v.refused {
			return v, false
		}
		v.refused = said.Info.Status
		return v, true
	}
	return v, false
}

func (s slot) device() map[string]any {
	device := map[string]any{"driver": s.Driver, "id": s.id()}
	for name, value := range s.Props {
		device[name] = value
	}
	return device
}

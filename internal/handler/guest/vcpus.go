package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// unplugPatience is how long a guest may take to release CPUs before it is asked again. A cooperating system takes
// well below a second, an emulated one a few.
const unplugPatience = 15 * time.Second

const (
	ostEvent     = "ACPI_DEVICE_OST"
	deletedEvent = "DEVICE_DELETED"
	slotTypeCPU  = "CPU"
)

// A guest's answers to a request to eject a device (_OST, ACPI 6.5, 6.3.5).
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

// vcpus is the state of the guest's virtual CPUs. It is a value; its slots are not modified.
type vcpus struct {
	inquiry
	slots []slot
	// since is when the guest was first asked to release the CPUs that it still has, asked when it was last asked;
	// both are zero if it may keep all. refused is the status of its refusal, 0 for none.
	since, asked time.Time
	refused      int64
}

func (v vcpus) count() int {
	n := 0
	for _, s := range v.slots {
		if s.Path != "" {
			n++
		}
	}
	return n
}

// A change in the number of CPUs ends an earlier request.
func (v vcpus) with(slots []slot) vcpus {
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

// changes returns the CPUs to plug or unplug to reach want: the first free slots, or the last CPUs. The very first
// CPU stays.
func (v vcpus) changes(want int) (plug, unplug []slot) {
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

// withWanted returns the state for a wanted number of CPUs, 0 for no change. If the guest may keep all CPUs, it
// forgets the earlier request: its answer says nothing about a later one.
func (v vcpus) withWanted(want int) vcpus {
	if want == 0 || want >= v.count() {
		v.since, v.asked, v.refused = time.Time{}, time.Time{}, 0
	}
	return v
}

// due reports whether to plug or unplug CPUs now; after is the delay if it is too early.
func (v vcpus) due(want int, now time.Time) (is bool, after time.Duration) {
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

func (v vcpus) keptReason(now time.Time) string {
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

func (v vcpus) handleEvent(e qmp.Event) (next vcpus, news bool) {
	switch e.Name {
	case deletedEvent:
		news = v.invalidate()
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

// RefreshCPUs queries the CPUs unless the answer is known.
func (g *Guest) RefreshCPUs(ctx context.Context) {
	g.refresh(ctx, &g.vcpus.inquiry, g.updateCPUs)
}

func (g *Guest) updateCPUs(ctx context.Context) error {
	question := g.nextQuestion(&g.vcpus.inquiry)
	var slots []slot
	if err := g.monitor.Execute(ctx, "query-hotpluggable-cpus", nil, &slots); err != nil {
		return fmt.Errorf("asking which CPUs there are: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vcpus.acceptAnswer(question) {
		g.vcpus = g.vcpus.with(slots)
	}
	return nil
}

// CPUsDue reports whether ChangeCPUs should be called now for the wanted number of CPUs, 0 for no change; after is
// the delay if it is too early.
func (g *Guest) CPUsDue(want int) (is bool, after time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vcpus = g.vcpus.withWanted(want); want == 0 {
		return false, 0
	}
	return g.vcpus.due(want, g.env.Now())
}

// KeptCPUs returns why the guest still has virtual CPUs that it was asked to release, "" if there are none or it may
// need more time.
func (g *Guest) KeptCPUs() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.vcpus.keptReason(g.env.Now())
}

// ChangeCPUs plugs virtual CPUs, or asks the guest to release some, to reach want. QEMU reports later whether the
// guest has.
func (g *Guest) ChangeCPUs(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := g.updateCPUs(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	plug, unplug := g.vcpus.changes(want)
	g.mu.Unlock()
	for _, s := range plug {
		if err := g.execute(ctx, "device_add", s.device()); err != nil {
			return errors.Join(fmt.Errorf("plugging the CPU %s: %w", s.id(), err), g.updateCPUs(ctx))
		}
	}
	for _, s := range unplug {
		if err := g.execute(ctx, "device_del", map[string]any{"id": s.Path}); err != nil {
			return fmt.Errorf("unplugging the CPU %s: %w", s.id(), err)
		}
	}
	if len(unplug) > 0 {
		g.recordUnplugRequest()
	}
	return g.updateCPUs(ctx)
}

// The guest's last answer stays until it gives another.
func (g *Guest) recordUnplugRequest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vcpus.asked = g.env.Now()
	if g.vcpus.since.IsZero() {
		g.vcpus.since = g.vcpus.asked
	}
}

func (s slot) device() map[string]any {
	device := map[string]any{"driver": s.Driver, "id": s.id()}
	for name, value := range s.Props {
		device[name] = value
	}
	return device
}

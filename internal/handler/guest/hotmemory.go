package guest

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// memoryStableAfter is how long a guest's memory must be unchanged before a size other than the requested one is
	// reported: it changes block by block.
	memoryStableAfter = 10 * time.Second
	// memoryPatience is how long a request may have no effect before that is reported. A guest that restarts has none
	// of the memory until its system runs.
	memoryPatience = time.Minute

	memoryEvent = "MEMORY_DEVICE_SIZE_CHANGE"
	memoryPath  = "/machine/peripheral/" + machine.MemoryDevice
)

// hotMemory is a guest's memory beyond that at its start. It is a value, and QEMU keeps all of it for the next
// virt-handler.
type hotMemory struct {
	inquiry
	known bool
	// requested is the size that the guest should have, size the part that it has taken, in bytes.
	requested, size int64
	// reportedSize is the size to report. changed is when requested or size last changed.
	reportedSize int64
	changed      time.Time
}

func (m hotMemory) with(requested, size int64, now time.Time) hotMemory {
	next := m
	next.known, next.requested, next.size = true, requested, size
	if !m.known {
		next.reportedSize = size
	}
	if !m.known || m.requested != requested || m.size != size {
		next.changed = now
	}
	return next.at(now)
}

func (m hotMemory) at(now time.Time) hotMemory {
	if m.size == m.requested || now.Sub(m.changed) >= memoryStableAfter {
		m.reportedSize = m.size
	}
	return m
}

// after returns the delay until the next look, 0 to wait for an event.
func (m hotMemory) after(now time.Time) time.Duration {
	if !m.known || m.size == m.requested {
		return 0
	}
	for _, wait := range []time.Duration{memoryStableAfter, memoryPatience} {
		if left := m.changed.Add(wait).Sub(now); left > 0 {
			return left
		}
	}
	return 0
}

func (m hotMemory) keptReason(now time.Time) string {
	if !m.known || m.size == m.requested || now.Sub(m.changed) < memoryPatience {
		return ""
	}
	amount := func(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
	if m.size < m.requested {
		return fmt.Sprintf("the guest does not take the memory that it is given: it has taken %s of %s for %v; its system may have no driver for virtio-mem, or may not bring memory into use",
			amount(m.size), amount(m.requested), memoryPatience)
	}
	return fmt.Sprintf("the guest does not give its memory back: it has kept %s, of which it is to keep %s, for %v; its system may be using it", amount(m.size), amount(m.requested), memoryPatience)
}

func (m hotMemory) facts() guestlifecycle.Memory {
	return guestlifecycle.Memory{Known: m.known, Requested: m.requested, Size: m.reportedSize}
}

type memoryInfo struct {
	Type string `json:"type"`
	Data struct {
		ID        string `json:"id"`
		Requested int64  `json:"requested-size"`
		Size      int64  `json:"size"`
		Most      int64  `json:"max-size"`
	} `json:"data"`
}

func (g *Guest) handleMemoryEvent(e qmp.Event) bool {
	if e.Name != memoryEvent {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.memory.invalidate()
}

// RefreshMemory queries the guest's memory unless the answer is known.
func (g *Guest) RefreshMemory(ctx context.Context) {
	now := g.env.Now()
	g.refresh(ctx, &g.memory.inquiry, func(ctx context.Context) error { return g.updateMemory(ctx, now) })
}

func (g *Guest) updateMemory(ctx context.Context, now time.Time) error {
	question := g.nextQuestion(&g.memory.inquiry)
	is, err := g.queryMemory(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.memory.acceptAnswer(question) && is != nil {
		g.memory = g.memory.with(is.Data.Requested, is.Data.Size, now)
	}
	return nil
}

func (g *Guest) queryMemory(ctx context.Context) (*memoryInfo, error) {
	var list []memoryInfo
	if err := g.monitor.Execute(ctx, "query-memory-devices", nil, &list); err != nil {
		return nil, fmt.Errorf("asking what memory the guest has: %w", err)
	}
	for i := range list {
		if list[i].Type == "virtio-mem" && list[i].Data.ID == machine.MemoryDevice {
			return &list[i], list[i].valid()
		}
	}
	return nil, nil
}

// valid checks QEMU's figures, since the guest may have taken QEMU over.
func (i *memoryInfo) valid() error {
	d := &i.Data
	if d.Requested < 0 || d.Size < 0 || max(d.Requested, d.Size) > d.Most || d.Most > machine.MostRoom {
		return fmt.Errorf("asking what memory the guest has: QEMU says %d of %d, of %d that there can be", d.Size, d.Requested, d.Most)
	}
	return nil
}

// GiveMemory sets the size of the guest's memory beyond that at its start, in bytes. The guest takes or releases it
// in its own time.
func (g *Guest) GiveMemory(ctx context.Context, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	now := g.env.Now()
	if err := g.execute(ctx, "qom-set", map[string]any{"path": memoryPath, "property": "requested-size", "value": size}); err != nil {
		return fmt.Errorf("giving the guest %d bytes of memory: %w", size, err)
	}
	return g.updateMemory(ctx, now)
}

// KeptMemory returns why the guest's memory differs from the request, "" if it does not or the guest may need more
// time.
func (g *Guest) KeptMemory() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.memory.keptReason(g.env.Now())
}

// LosesWrites reports whether the guest must be stopped before it is migrated: QEMU before 9.0 misses some writes of
// an emulated guest to a block of memory of whole 256 KiB, such as plugged memory, and would not send them
// (decisions 302 and 398).
func (f Facts) LosesWrites() bool {
	return !f.KVM && (f.Memory.Requested > 0 || f.Memory.Size > 0)
}

func (g *Guest) losesWrites(ctx context.Context) (bool, error) {
	if g.kvm {
		return false, nil
	}
	is, err := g.queryMemory(ctx)
	if is == nil || err != nil {
		return false, err
	}
	return Facts{Memory: guestlifecycle.Memory{Requested: is.Data.Requested, Size: is.Data.Size}}.LosesWrites(), nil
}

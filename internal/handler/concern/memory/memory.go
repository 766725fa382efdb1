// Package memory gives a running guest more memory than at its start, and takes it back. It is a concern (package
// concern).
//
// vmihandler.DecideMemory is the rule. The guest takes and releases memory in its own time; the package keeps the time of
// the last change.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/memoryhotplug"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// stableAfter is how long a size other than the requested one must be unchanged before it is reported: the memory
	// changes block by block.
	stableAfter = 10 * time.Second
	// patience is how long a request may have no effect before that is reported. A restarting guest takes the memory
	// when its system runs.
	patience = time.Minute

	changeEvent = "MEMORY_DEVICE_SIZE_CHANGE"
)

// Seen is a guest's memory beyond that at its start. It is a value. QEMU keeps the sizes for the next virt-handler.
type Seen struct {
	inquiry concern.Inquiry
	known   bool
	// The guest should take requested, and has taken size, in bytes.
	requested, size int64
	reportedSize    int64
	changed         time.Time // of requested or size
}

func (s Seen) with(requested, size int64, now time.Time) Seen {
	next := s
	next.known, next.requested, next.size = true, requested, size
	if !s.known {
		next.reportedSize = size
	}
	if !s.known || s.requested != requested || s.size != size {
		next.changed = now
	}
	return next.at(now)
}

func (s Seen) at(now time.Time) Seen {
	if s.size == s.requested || now.Sub(s.changed) >= stableAfter {
		s.reportedSize = s.size
	}
	return s
}

// after returns the delay until the next decision, 0 to wait for an event.
func (s Seen) after(now time.Time) time.Duration {
	if !s.known || s.size == s.requested {
		return 0
	}
	for _, wait := range []time.Duration{stableAfter, patience} {
		if left := s.changed.Add(wait).Sub(now); left > 0 {
			return left
		}
	}
	return 0
}

func (s Seen) problem(now time.Time) string {
	if !s.known || s.size == s.requested || now.Sub(s.changed) < patience {
		return ""
	}
	amount := func(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
	if s.size < s.requested {
		return fmt.Sprintf("the guest does not take the memory that it is given: it has taken %s of %s for %v; its system may have no driver for virtio-mem, or may not bring memory into use",
			amount(s.size), amount(s.requested), patience)
	}
	return fmt.Sprintf("the guest does not give its memory back: it has kept %s, of which it is to keep %s, for %v; its system may be using it", amount(s.size), amount(s.requested), patience)
}

func (s Seen) facts() vmihandler.Memory {
	return vmihandler.Memory{Known: s.known, Requested: s.requested, Size: s.reportedSize}
}

// Plan is the next step.
type Plan struct {
	concern.Next
	vmihandler.MemoryStep
	Has vmihandler.Memory
}

// Concern is the memory of one guest.
type Concern struct {
	mu   sync.Mutex
	seen Seen
}

// LastKnown returns the last known facts.
func (c *Concern) LastKnown() vmihandler.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.facts()
}

// HandleEvent implements concern.Concern.
func (c *Concern) HandleEvent(e qmp.Event) bool {
	if e.Name != changeEvent {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.inquiry.Invalidate()
}

// Observe implements concern.Concern. It queries nothing for a guest without room for more memory.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	var err error
	if vmihandler.CanChangeMemory(r.VMI) && c.outdated() {
		ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
		defer cancel()
		err = c.update(ctx, q, r.Now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = c.seen.at(r.Now)
	return c.seen, err
}

func (c *Concern) outdated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.inquiry.Outdated()
}

func (c *Concern) update(ctx context.Context, q concern.Query, now time.Time) error {
	c.mu.Lock()
	question := c.seen.inquiry.NextQuestion()
	c.mu.Unlock()
	is, err := memoryhotplug.Ask(ctx, q, machine.MemoryDevice, machine.MostRoom)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.inquiry.AcceptAnswer(question) && is != nil {
		c.seen = c.seen.with(is.Requested, is.Size, now)
	}
	return nil
}

// Decide implements concern.Concern.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	seen = seen.at(r.Now)
	p := Plan{Has: seen.facts()}
	p.After, p.Given = seen.after(r.Now), seen.requested
	if !seen.known {
		return p
	}
	if r.RunState == runstate.Running {
		p.Problem = seen.problem(r.Now)
	}
	if podresize.MemoryAnnounced(r.VMI) && !r.Migrating && r.Resources != nil {
		p.MemoryStep = vmihandler.DecideMemory(r.VMI, p.Has, r.RunState, r.Pod, *r.Resources)
	}
	p.Due = p.Set && r.Reported()
	return p
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) {
	facts.Memory, facts.MemoryGiven = plan.Has, plan.Given
}

// Act implements concern.Concern.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, r concern.Round, plan Plan) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := memoryhotplug.Set(ctx, m, machine.MemoryDevice, plan.To); err != nil {
		return err
	}
	return c.update(ctx, concern.QueryOf(m), r.Now)
}

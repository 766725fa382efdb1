// Package cpus plugs virtual CPUs into a running guest, and asks the guest to release some. It is a concern (package
// concern).
//
// vmihandler.WantedCPUs is the rule. slots.go decides which CPUs to plug and unplug, and when to ask the guest again.
package cpus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// usePatience is how long a guest's system may take to use new CPUs.
	usePatience = 30 * time.Second
	// They bound the interval of queries.
	useFirst   = time.Second
	useLongest = 8 * time.Second

	reasonCPUsNotUsed = "CPUsNotUsed"
)

// Env has a Concern's dependencies.
type Env struct {
	// Used asks the guest agent how many CPUs the guest's system uses: QEMU does not know.
	Used func(ctx context.Context) (int, error)
	Warn func(vmi *v1.VirtualMachineInstance, reason, message string)
	// Go runs a goroutine that the owner waits for.
	Go func(func())
}

// Plan is the next step.
type Plan struct {
	concern.Next
	Has    int // virtual CPUs now, 0 if unknown
	Wanted int // 0 for no change
}

// Concern is the virtual CPUs of one guest.
type Concern struct {
	env  Env
	mu   sync.Mutex
	seen Seen
}

// New returns the CPUs of a guest about which nothing is known yet.
func New(env Env) *Concern { return &Concern{env: env} }

// HandleEvent implements concern.Concern.
func (c *Concern) HandleEvent(e qmp.Event) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, news = c.seen.handleEvent(e)
	return news
}

// Observe implements concern.Concern. It queries nothing for a guest without room for more CPUs.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	var err error
	if vmihandler.CanChangeCPUs(r.VMI) && c.outdated() {
		ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
		defer cancel()
		err = c.update(ctx, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = c.seen.withWanted(wanted(r, c.seen))
	return c.seen, err
}

func (c *Concern) outdated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.inquiry.Outdated()
}

func (c *Concern) update(ctx context.Context, q concern.Query) error {
	c.mu.Lock()
	question := c.seen.inquiry.NextQuestion()
	c.mu.Unlock()
	var slots []slot
	if err := q.Execute(ctx, "query-hotpluggable-cpus", nil, &slots); err != nil {
		return fmt.Errorf("asking which CPUs there are: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.inquiry.AcceptAnswer(question) {
		c.seen = c.seen.with(slots)
	}
	return nil
}

// wanted is 0 for no change.
func wanted(r concern.Round, seen Seen) int {
	if !podresize.CPUsAnnounced(r.VMI) || r.Migrating || r.Resources == nil {
		return 0
	}
	return vmihandler.WantedCPUs(r.VMI, seen.count(), r.RunState, r.KVM, r.Pod, *r.Resources)
}

// Decide implements concern.Concern.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	p := Plan{Has: seen.count(), Wanted: wanted(r, seen)}
	seen = seen.withWanted(p.Wanted)
	p.Problem = seen.problem(r.Now)
	if p.Wanted != 0 {
		p.Due, p.After = seen.due(p.Wanted, r.Now)
	}
	p.Due = p.Due && r.Reported()
	return p
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) { facts.VCPUs = plan.Has }

// Act implements concern.Concern. QEMU reports later whether the guest has released CPUs.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, r concern.Round, plan Plan) error {
	if err := c.change(ctx, m, plan.Wanted, r.Now); err != nil {
		return err
	}
	if plan.Wanted > plan.Has {
		c.env.Go(func() { c.warnIfUnused(ctx, r.VMI, plan.Wanted) })
	}
	return nil
}

func (c *Concern) change(ctx context.Context, m concern.Monitor, want int, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	q := concern.QueryOf(m)
	if err := c.update(ctx, q); err != nil {
		return err
	}
	c.mu.Lock()
	plug, unplug := c.seen.changes(want)
	c.mu.Unlock()
	for _, s := range plug {
		if err := m.Execute(ctx, "device_add", s.device(), nil); err != nil {
			return errors.Join(fmt.Errorf("plugging the CPU %s: %w", s.id(), err), c.update(ctx, q))
		}
	}
	for _, s := range unplug {
		if err := m.Execute(ctx, "device_del", map[string]any{"id": s.Path}, nil); err != nil {
			return fmt.Errorf("unplugging the CPU %s: %w", s.id(), err)
		}
	}
	if len(unplug) > 0 {
		c.mu.Lock()
		c.seen.asked = now // refused stays until the guest answers again
		if c.seen.since.IsZero() {
			c.seen.since = now
		}
		c.mu.Unlock()
	}
	return c.update(ctx, q)
}

// There is no event if the agent can't tell.
func (c *Concern) warnIfUnused(ctx context.Context, vmi *v1.VirtualMachineInstance, cpus int) {
	looking, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	var last int
	backoff.Retry(looking, backoff.Doubling(useFirst, useLongest), func(ctx context.Context) bool {
		var err error
		last, err = c.env.Used(ctx)
		return err != nil || last >= cpus
	})
	if ctx.Err() == nil && looking.Err() != nil && last < cpus {
		c.env.Warn(vmi, reasonCPUsNotUsed,
			fmt.Sprintf("The guest uses %d of the %d CPUs that it has: its system has not brought the others into use.", last, cpus))
	}
}

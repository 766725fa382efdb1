// Package disks plugs hotplugged volumes into a running guest, asks the guest to release others, and grows the disks
// whose claims have grown. It is a concern (package concern).
//
// The rules are nodehotplug.Decide (plugging) and decidegrowth.go. QEMU remembers the volume of each disk. The package
// keeps the disks that it has opened and not plugged yet, and the times of its attempts; the next virt-handler repeats
// both.
package disks

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Env has the effects of Act outside of QEMU.
type Env struct {
	Volume func(ctx context.Context, pod types.UID, claim string) (*podpath.Volume, error)
	// Capacity is in bytes.
	Capacity func(ctx context.Context, claim string) (int64, error)
	// Tolerated is the percentage by which a new disk may be smaller than its claim.
	Tolerated func() int
	Input     func(vmi *v1.VirtualMachineInstance) machine.Input
	Event     func(vmi *v1.VirtualMachineInstance, kind, reason, message string)
	// Go runs a function that may wait for storage; the owner waits for it. It calls Wake after a change.
	Go   func(func())
	Wake func()
	Now  func() time.Time
}

// Plan is the next step.
type Plan struct {
	concern.Next
	Decisions []nodehotplug.Decision // about plugging
	tried     nodehotplug.Attempts
	opening   map[string]bool
	Grow      []growth
	// The VMI's status gets Volumes (all disks) and Hotplugged.
	Volumes    map[string]vmihandler.Volume
	Hotplugged map[string]vmihandler.Plugged
	Plugged    map[string]bool // the volumes of the spec that QEMU has
	// Fixed means that the disks of a migrating guest no longer change. They are Plugs.
	Fixed    bool
	Plugs    nodehotplug.Plugs
	Received bool // QEMU has all disks of the guest for which it waits
}

type openedDisk struct {
	pod  types.UID
	disk *nodehotplug.Opened
}

// Concern is the disks of one guest.
type Concern struct {
	env   Env
	log   logr.Logger
	mu    sync.Mutex
	state Seen
	files map[string]openedDisk
	// failed has failures to open that recordFailures has not taken up yet.
	failed map[string]error
	// resumed means that a stopped guest has continued: until then QEMU 7.2 keeps removed descriptors.
	resumed, closed bool
}

// New returns the disks of a guest about which nothing is known yet.
func New(env Env, log logr.Logger) *Concern {
	return &Concern{env: env, log: log, state: newSeen(), files: map[string]openedDisk{}, failed: map[string]error{}}
}

// Close closes the disks that were opened and not plugged.
func (c *Concern) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, f := range c.files {
		f.disk.File.Close()
	}
	clear(c.files)
	clear(c.state.opened)
}

// HandleEvent implements concern.Concern.
func (c *Concern) HandleEvent(e qmp.Event) (news bool) {
	var data struct {
		Device string `json:"device"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Name {
	case "RESUME":
		c.resumed = true
		c.state.inquiry.Invalidate()
		return false
	case "DEVICE_UNPLUG_GUEST_ERROR":
		// A hostile QEMU may report any number of other disks.
		for volume := range c.state.asked {
			if machine.DiskID(volume) == data.Device {
				c.state.refused[data.Device] = true
			}
		}
	case "DEVICE_DELETED", "DEVICE_TRAY_MOVED":
	default:
		return false
	}
	c.state.inquiry.Invalidate()
	return true
}

// Observe implements concern.Concern.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	var err error
	if !ending(&r) {
		err = c.query(ctx, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && !ending(&r) && !frozen(&r) {
		c.recordFailures(&r)
	}
	return c.state.clone(), err
}

func (c *Concern) query(ctx context.Context, q concern.Query) error {
	c.mu.Lock()
	outdated, question := c.state.inquiry.Outdated(), c.state.inquiry.NextQuestion()
	c.mu.Unlock()
	if !outdated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	disks, err := diskhotplug.Observe(ctx, q)
	if err != nil {
		return fmt.Errorf("asking QEMU for its hotplugged disks: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.inquiry.AcceptAnswer(question) {
		return nil
	}
	c.state.disks = disks
	for volume := range c.state.asked {
		if disks[volume].Stage != diskhotplug.Plugged {
			delete(c.state.asked, volume)
			delete(c.state.refused, machine.DiskID(volume))
		}
	}
	return nil
}

// recordFailures counts the failures since the last round. The caller holds c.mu.
func (c *Concern) recordFailures(r *concern.Round) {
	if c.resumed {
		c.resumed, c.state.tried = false, nil
	}
	if _, err := hotplug.RecordOf(r.VMI); err != nil {
		c.log.Error(err, "no volume is handed over")
	}
	decisions := c.state.decisions(r)
	c.state.tried = c.state.tried.For(decisions)
	for i := range decisions {
		if err := c.failed[decisions[i].Volume]; err != nil {
			delete(c.failed, decisions[i].Volume)
			c.state.tried = c.state.tried.Record(decisions[i].Volume, decisions[i].Action, err, r.Now)
		}
	}
}

// Decide implements concern.Concern. It decides about plugging only after QEMU's answer.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	vmi := r.VMI
	if r.Arrival != nil {
		vmi = r.Arrival.VMI
	}
	p := Plan{
		Plugged: nodehotplug.Plugged(vmi, seen.disks), Fixed: seen.fixed(&r), Plugs: nodehotplug.PlugsOf(seen.disks),
		Volumes: map[string]vmihandler.Volume{}, Hotplugged: map[string]vmihandler.Plugged{}, opening: seen.opening,
	}
	for name, image := range r.Images {
		p.Volumes[name] = vmihandler.Volume{Size: image.VirtualSize, Grown: seen.growing.sizes[name], Claim: r.Claims[name]}
	}
	for name, claim := range r.Claims {
		if _, has := r.Images[name]; !has {
			p.Volumes[name] = vmihandler.Volume{Claim: claim} // the VM's state, or a shared folder
		}
	}
	switch {
	case ending(&r), frozen(&r):
	case seen.inquiry.Outdated():
		p.After = nodehotplug.LongestDelay
	default:
		p.planPlugs(&r, &seen)
	}
	if r.Arrival == nil {
		due, after := decideGrowth(&r, &seen.growing, r.Now)
		p.After = backoff.Sooner(p.After, after)
		if !r.Migrating && !r.CopyingDisks {
			p.Grow, p.Due = due, p.Due || len(due) > 0
		}
	}
	return p
}

func (p *Plan) planPlugs(r *concern.Round, seen *Seen) {
	p.Decisions = seen.decisions(r)
	p.tried = seen.tried.For(p.Decisions)
	p.Due, p.After = p.tried.Schedule(p.Decisions, seen.opening, r.Now)
	if r.Arrival != nil {
		p.Received = nodehotplug.Received(r.Arrival.VMI, seen.disks, r.Arrival.Places)
		return
	}
	p.Due = p.Due && !r.Migrating && !r.CopyingDisks // the target finds the disks that the guest had
	for name, f := range nodehotplug.Facts(r.VMI, p.Decisions, p.tried, seen.disks, seen.refused) {
		p.Hotplugged[name] = vmihandler.Plugged{
			Phase: f.Phase, Reason: f.Reason, Message: f.Message, PodName: f.PodName, PodUID: f.PodUID, Size: f.Size,
		}
	}
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) {
	facts.Volumes, facts.Plugged = plan.Volumes, plan.Hotplugged
}

// Act implements concern.Concern. The volume's status shows a failed action, which is retried later and delays no other.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, r concern.Round, plan Plan) error {
	for _, of := range plan.Grow {
		c.grow(ctx, m, r.VMI, of)
	}
	in := c.env.Input(r.VMI)
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action == nodehotplug.Rest || plan.opening[d.Volume] || plan.tried.Wait(d, c.env.Now()) > 0 {
			continue
		}
		err := c.apply(ctx, m, in, d)
		c.mu.Lock()
		c.state.tried = c.state.tried.Record(d.Volume, d.Action, err, c.env.Now())
		c.mu.Unlock()
	}
	return nil
}

// Package nics plugs interfaces into a running guest, asks the guest to release others, and connects them to the
// launcher pod. It is a concern (package concern).
//
// nichotplug.Node is the rule. The driver prepares the pod's network (Env). The package keeps the times of its requests
// and the connected interfaces; the next virt-handler repeats both.
package nics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	migrations "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const deletedEvent = "DEVICE_DELETED"

// They bound QEMU's answer: a machine has fewer ports, and names are not longer.
const (
	maxNICs    = 256
	maxNICName = 63
)

// Pod answers questions about the launcher pod. Its methods change nothing.
type Pod interface {
	// Disconnected returns the named interfaces whose device in the pod is gone or was replaced.
	Disconnected(names []string) ([]string, error)
	// Devices returns the node's devices that the pod was given.
	Devices(vmi *v1.VirtualMachineInstance) (nichotplug.Devices, error)
}

// Env has the effects of Act outside of QEMU.
type Env struct {
	// Connect connects the VMI's interfaces, also those in plug, to the pod, and returns all that the guest may get.
	Connect func(ctx context.Context, vmi *v1.VirtualMachineInstance, plug []string) ([]network.Interface, error)
	// Build returns QEMU's arguments for an interface. netdev is nil if it has no backend.
	Build func(vmi *v1.VirtualMachineInstance, interfaces []network.Interface, name string) (netdev, device machine.Properties, err error)
	// RemoveLeftovers removes leftovers of secondary interfaces from the pod, except those in keep.
	RemoveLeftovers func(keep []string) error
	Now             func() time.Time
}

// Plan is the next step.
type Plan struct {
	concern.Next
	Step       nichotplug.Step
	Interfaces []vmihandler.Interface
}

// Concern is the interfaces of one guest.
type Concern struct {
	env  Env
	pod  Pod
	log  logr.Logger
	mu   sync.Mutex
	seen Seen
}

// New returns the interfaces of a guest. This virt-handler has connected those in connected to the pod.
func New(env Env, pod Pod, log logr.Logger, connected []network.Interface) *Concern {
	return &Concern{env: env, pod: pod, log: log, seen: Seen{connected: connected}}
}

// Present returns QEMU's known interfaces.
func (c *Concern) Present() map[string]bool { return c.lastKnown().present }

// Connected returns the interfaces that are connected to the pod. Do not modify it.
func (c *Concern) Connected() []network.Interface { return c.lastKnown().connected }

func (c *Concern) lastKnown() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

func (c *Concern) update(change func(Seen) Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = change(c.seen)
}

// HandleEvent implements concern.Concern.
func (c *Concern) HandleEvent(e qmp.Event) (news bool) {
	if e.Name != deletedEvent {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.inquiry.Invalidate()
}

// Observe implements concern.Concern. It also checks the interfaces in the pod after each write of the pod object: a
// network attacher writes that when it has removed or replaced an interface.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	var err error
	if known := c.lastKnown(); known.inquiry.Outdated() {
		err = c.QueryNICs(ctx, q)
	}
	if !busy(&r) && !migrations.InFlight(r.VMI) {
		c.observePod(&r)
	}
	return c.lastKnown(), err
}

// QueryNICs queries QEMU's interfaces, also those that another virt-handler has plugged.
func (c *Concern) QueryNICs(ctx context.Context, q concern.Query) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	c.mu.Lock()
	question := c.seen.inquiry.NextQuestion()
	c.mu.Unlock()
	var list []struct {
		Name string `json:"name"`
	}
	if err := q.Execute(ctx, "qom-list", map[string]any{"path": "/machine/peripheral"}, &list); err != nil {
		return fmt.Errorf("asking QEMU for its devices: %w", err)
	}
	present := map[string]bool{}
	for _, device := range list {
		// A hostile QEMU may return anything.
		if name, ok := strings.CutPrefix(device.Name, machine.NICID("")); ok && len(name) <= maxNICName && len(present) < maxNICs {
			present[name] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.inquiry.AcceptAnswer(question) {
		c.seen = c.seen.withPresent(present)
	}
	return nil
}

// observePod forgets connections that the pod has lost, and reads the pod's devices if an interface may need one.
func (c *Concern) observePod(r *concern.Round) {
	seen := c.lastKnown()
	if names := seen.onMultus(r.VMI); len(names) > 0 && seen.checkedPod != r.PodVersion {
		lost, err := c.pod.Disconnected(names)
		if err != nil {
			c.log.Error(err, "cannot see whether the guest's interfaces are connected; it is looked again when its pod changes, or something else does")
		} else {
			c.update(func(s Seen) Seen {
				s = s.disconnected(lost)
				s.checkedPod = r.PodVersion
				return s
			})
		}
	}
	var devices nichotplug.Devices
	if node := c.lastKnown().node(r); !node.Settled() {
		var err error
		if devices, err = c.pod.Devices(r.VMI); err != nil {
			c.log.Info("the devices of the launcher pod are not known", "reason", err.Error())
		}
	}
	c.update(func(s Seen) Seen {
		s.devices = devices
		return s
	})
}

func busy(r *concern.Round) bool { return r.Halted || r.Migrating || r.CopyingDisks }

// Decide implements concern.Concern. A guest releases the node's devices before it migrates.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	node, migrates := seen.node(&r), migrations.InFlight(r.VMI)
	p := Plan{Interfaces: seen.interfaces(r.VMI)}
	switch {
	case busy(&r):
	case migrates && r.TargetConnected:
		p.Step = node.Depart()
	case migrates:
	case node.Settled():
		p.Settled = true
	default:
		p.Step = node.Next()
	}
	if err := p.Step.Problem(); err != nil {
		p.Problem = err.Error()
	}
	if migrates {
		p.Unsettled, p.Refusal = node.Departure(p.Step.Kept)
	}
	p.After, p.Due = p.Step.After, p.Step.Any() && r.Reported()
	return p
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) { facts.Interfaces = plan.Interfaces }

// Act implements concern.Concern. One interface's failure does not stop the others.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, r concern.Round, plan Plan) error {
	step := &plan.Step
	var errs []error
	for _, name := range step.Unplug {
		errs = append(errs, c.unplug(ctx, m, name))
	}
	for _, name := range step.Clear {
		errs = append(errs, c.clear(ctx, m, name))
	}
	if step.RemoveLeftovers {
		err := c.env.RemoveLeftovers(step.Keep)
		errs = append(errs, err)
		c.update(func(s Seen) Seen {
			s.tidied = s.tidied || err == nil
			return s
		})
	}
	if len(step.Plug)+len(step.Reconnect) > 0 {
		errs = append(errs, c.connect(ctx, m, r.VMI, step))
	}
	// The pod may lose its device before the guest releases its own: an interface that stays must be connected again.
	c.update(func(s Seen) Seen { return s.disconnected(step.Unplug) })
	return errors.Join(errs...)
}

func (c *Concern) connect(ctx context.Context, m concern.Monitor, vmi *v1.VirtualMachineInstance, step *nichotplug.Step) error {
	interfaces, err := c.env.Connect(ctx, vmi, step.Plug)
	if err != nil {
		return err
	}
	c.update(func(s Seen) Seen {
		s.connected = interfaces
		now := c.env.Now()
		for _, name := range step.Reconnect {
			s.plugged = with(s.plugged, name, now)
		}
		// The guest no longer has to release these.
		s.asked, s.since = without(s.asked, step.Reconnect...), without(s.since, step.Reconnect...)
		return s
	})
	for _, name := range step.Plug {
		netdev, device, err := c.env.Build(vmi, interfaces, name)
		if err != nil {
			return fmt.Errorf("building interface %s: %w", name, err)
		}
		if err := c.plug(ctx, m, name, netdev, device); err != nil {
			return err
		}
	}
	return nil
}

func (s Seen) onMultus(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for _, i := range s.connected {
		if s.present[i.Name] && nichotplug.OnMultus(vmi, i.Name) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names
}

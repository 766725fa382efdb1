// Package links switches the links of a running guest's interfaces. It is a concern (package concern).
//
// QEMU does not report link states, so the package keeps those that it has set. An earlier virt-handler may have set
// others, so it sets each link once, and again when its wanted state changes.
package links

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Seen has the link states that were set, by interface.
type Seen map[string]v1.InterfaceState

func (s Seen) due(interfaces []v1.Interface) []v1.Interface {
	var list []v1.Interface
	for i := range interfaces {
		iface := interfaces[i]
		if iface.State == v1.InterfaceStateAbsent {
			continue
		}
		if iface.State != v1.InterfaceStateLinkDown {
			iface.State = v1.InterfaceStateLinkUp
		}
		if s[iface.Name] != iface.State {
			list = append(list, v1.Interface{Name: iface.Name, State: iface.State})
		}
	}
	return list
}

// switchable returns the interfaces whose links QEMU switches: its own, except devices of the node. It always has the one
// on the pod network.
func switchable(r concern.Round) []v1.Interface {
	var list []v1.Interface
	for _, iface := range r.VMI.Spec.Domain.Devices.Interfaces {
		if iface.SRIOV == nil && (nichotplug.OnPodNetwork(r.VMI, iface.Name) || r.NICs[iface.Name]) {
			list = append(list, iface)
		}
	}
	return list
}

// Plan is the next step.
type Plan struct {
	concern.Next
	Set []v1.Interface // the links to set
	Has Seen
}

// Concern is the links of one guest.
type Concern struct {
	mu   sync.Mutex
	seen Seen
}

// New returns the links of a guest about which nothing is known yet.
func New() *Concern { return &Concern{seen: Seen{}} }

// HandleEvent implements concern.Concern. It forgets the link of a removed device: the next of its name starts with its
// link up.
func (c *Concern) HandleEvent(e qmp.Event) (news bool) {
	var gone struct {
		Device string `json:"device"`
	}
	if e.Name != "DEVICE_DELETED" || json.Unmarshal(e.Data, &gone) != nil {
		return false
	}
	if name, is := strings.CutPrefix(gone.Device, machine.NICID("")); is {
		c.forget(name)
	}
	return false
}

func (c *Concern) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, name)
}

// Observe implements concern.Concern.
func (c *Concern) Observe(context.Context, concern.Query, concern.Round) (Seen, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen), nil
}

// Decide implements concern.Concern. It does not wait until the guest is reported: the links must be right before the
// guest sees them.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	set := seen.due(switchable(r))
	return Plan{Next: concern.Next{Due: len(set) > 0}, Set: set, Has: seen}
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) { facts.Links = plan.Has }

// Act implements concern.Concern. It switches the backend's link, and thereby the device's, so that a guest that ignores
// its device's link sends nothing either.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, _ concern.Round, plan Plan) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	for _, iface := range plan.Set {
		c.mu.Lock()
		c.seen[iface.Name] = iface.State // before the command: the event of the device's removal must come later
		c.mu.Unlock()
		args := map[string]any{"name": machine.NetdevID(iface.Name), "up": iface.State == v1.InterfaceStateLinkUp}
		if err := m.Execute(ctx, "set_link", args, nil); err != nil {
			c.forget(iface.Name)
			return fmt.Errorf("switching the link of interface %s %s: %w", iface.Name, iface.State, err)
		}
	}
	return nil
}

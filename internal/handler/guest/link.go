package guest

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// links has the link states that this Guest has set, by interface. QEMU does not report link states.
type links map[string]v1.InterfaceState

// due returns the links to set, in the order of the interfaces. Each link is set once, since another virt-handler may
// have set it differently, and then whenever its wanted state changes.
func (l links) due(interfaces []v1.Interface) []v1.Interface {
	var list []v1.Interface
	for i := range interfaces {
		iface := interfaces[i]
		if iface.State == v1.InterfaceStateAbsent {
			continue
		}
		if iface.State != v1.InterfaceStateLinkDown {
			iface.State = v1.InterfaceStateLinkUp
		}
		if l[iface.Name] != iface.State {
			list = append(list, v1.Interface{Name: iface.Name, State: iface.State})
		}
	}
	return list
}

// LinksDiffer reports whether SwitchLinks has work.
func (g *Guest) LinksDiffer(interfaces []v1.Interface) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.links.due(interfaces)) > 0
}

// SwitchLinks sets the interfaces' links to the states in the spec. Switching the backend's link also switches that
// of the guest's device: a guest that ignores its device's link sends nothing either.
func (g *Guest) SwitchLinks(ctx context.Context, interfaces []v1.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	g.mu.Lock()
	due := g.links.due(interfaces)
	g.mu.Unlock()
	for _, iface := range due {
		args := map[string]any{"name": machine.NetdevID(iface.Name), "up": iface.State == v1.InterfaceStateLinkUp}
		if err := g.execute(ctx, "set_link", args); err != nil {
			return fmt.Errorf("switching the link of interface %s %s: %w", iface.Name, iface.State, err)
		}
		g.mu.Lock()
		g.links[iface.Name] = iface.State
		g.mu.Unlock()
	}
	return nil
}

package guest

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// links are the states of the links that QEMU was told of by this Guest, by interface. QEMU does not tell them.
type links map[string]v1.InterfaceState

// due lists what QEMU is to be told, in the order of the interfaces: each link once, since another
// virt-handler may have told it something else, and then each that is to be in another state.
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

// LinksDiffer reports whether links of the specification's interfaces are to be switched.
func (g *Guest) LinksDiffer(interfaces []v1.Interface) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.links.due(interfaces)) > 0
}

// SwitchLinks brings the links of the interfaces to the states that the specification asks for. The
// link of the backend is switched, and that of the guest's device with it: a guest that does not heed
// its device's link sends nothing either.
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

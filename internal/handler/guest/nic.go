package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

const deletedEvent = "DEVICE_DELETED"

const peripherals = "/machine/peripheral"

// Bounds of QEMU's answer: a machine has fewer ports, and interface names are not longer.
const (
	maxNICs    = 256
	maxNICName = 63
)

// NICs is the known state of QEMU's interfaces, by name.
type NICs struct {
	// Present are the interfaces that QEMU has. Gone are those that it had and whose backends remain.
	Present, Gone map[string]bool
	// Asked is when the guest was last asked to release an interface, Since when it was first asked, and Plugged when
	// the interface was plugged.
	Asked, Since, Plugged map[string]time.Time
}

func newNICs() NICs {
	return NICs{map[string]bool{}, map[string]bool{}, map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}}
}

func (n *NICs) clone() NICs {
	return NICs{maps.Clone(n.Present), maps.Clone(n.Gone), maps.Clone(n.Asked), maps.Clone(n.Since), maps.Clone(n.Plugged)}
}

func (n *NICs) with(present map[string]bool) NICs {
	next := n.clone()
	next.Present = present
	for name := range n.Present {
		if !present[name] {
			next.Gone[name] = true
			delete(next.Asked, name)
			delete(next.Since, name)
		}
	}
	return next
}

// refreshNICs queries QEMU's interfaces unless the answer is known. Without an answer, it is outdated.
func (g *Guest) refreshNICs(ctx context.Context) {
	g.mu.Lock()
	outdated := g.nicList.Outdated()
	g.mu.Unlock()
	if !outdated {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := g.updateNICs(ctx); err != nil {
		g.env.Log.V(1).Info("QEMU did not answer", "reason", err.Error())
	}
}

// updateNICs queries QEMU's interfaces. The list includes those that another virt-handler has plugged.
func (g *Guest) updateNICs(ctx context.Context) error {
	g.mu.Lock()
	question := g.nicList.NextQuestion()
	g.mu.Unlock()
	var list []object
	if err := g.monitor.Execute(ctx, "qom-list", map[string]any{"path": peripherals}, &list); err != nil {
		return fmt.Errorf("asking QEMU for its devices: %w", err)
	}
	present := map[string]bool{}
	for id := range names(list) {
		// A guest that has taken QEMU over may return anything.
		if name, ok := strings.CutPrefix(id, machine.NICID("")); ok && len(name) <= maxNICName && len(present) < maxNICs {
			present[name] = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nicList.AcceptAnswer(question) {
		g.nics = g.nics.with(present)
	}
	return nil
}

// handleDeletedEvent reports whether a device has gone, which may be an interface.
func (g *Guest) handleDeletedEvent(e qmp.Event) bool {
	if e.Name != deletedEvent {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nicList.Invalidate()
	return true
}

// PlugNIC plugs an interface; netdev is nil if it has no backend. It may be repeated: it replaces the remains of an
// earlier attempt.
func (g *Guest) PlugNIC(ctx context.Context, name string, netdev, device machine.Properties) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if netdev != nil {
		if err := g.addNetdev(ctx, name, netdev); err != nil {
			return fmt.Errorf("having QEMU open the network of interface %s: %w", name, err)
		}
	}
	if err := g.execute(ctx, "device_add", device); err != nil {
		if netdev != nil {
			err = errors.Join(err, g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}))
		}
		return fmt.Errorf("plugging interface %s: %w", name, err)
	}
	g.env.Log.Info("plugged an interface", "interface", name)
	g.mu.Lock()
	g.nics.Plugged[name] = g.env.Now()
	delete(g.nics.Gone, name)
	g.mu.Unlock()
	return g.updateNICs(ctx)
}

// addNetdev replaces a backend from an earlier attempt.
func (g *Guest) addNetdev(ctx context.Context, name string, netdev machine.Properties) error {
	err := g.execute(ctx, "netdev_add", netdev)
	if !isDuplicateID(err) {
		return err
	}
	if err := g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}); err != nil {
		return err
	}
	return g.execute(ctx, "netdev_add", netdev)
}

// NoteConnected records that interfaces in QEMU were connected to the pod again: the guest no longer has to release
// them.
func (g *Guest) NoteConnected(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.nics.Plugged[name] = g.env.Now()
		delete(g.nics.Asked, name)
		delete(g.nics.Since, name)
	}
}

func isDuplicateID(err error) bool {
	var refusal *qmp.Error
	return errors.As(err, &refusal) && strings.Contains(strings.ToLower(refusal.Desc), "duplicate id")
}

func isDeviceNotFound(err error) bool {
	var refusal *qmp.Error
	return errors.As(err, &refusal) && refusal.Class == "DeviceNotFound"
}

// UnplugNIC asks the guest to release an interface. QEMU reports an event once it has. It may be repeated.
func (g *Guest) UnplugNIC(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	err := g.execute(ctx, "device_del", map[string]any{"id": machine.NICID(name)})
	var refusal *qmp.Error
	switch {
	case isDeviceNotFound(err):
		return g.updateNICs(ctx)
	case errors.As(err, &refusal) && strings.Contains(refusal.Desc, "already in the process of unplug"):
		// The guest has not answered the earlier request yet.
	case err != nil:
		return fmt.Errorf("unplugging interface %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nics.Asked[name] = g.env.Now()
	if _, before := g.nics.Since[name]; !before {
		g.nics.Since[name] = g.env.Now()
	}
	return nil
}

// ClearNIC removes the backend of an interface that the guest has released. It may be repeated.
func (g *Guest) ClearNIC(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}); err != nil && !isDeviceNotFound(err) {
		return fmt.Errorf("having QEMU close the network of interface %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.nics.Gone, name)
	return nil
}

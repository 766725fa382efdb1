package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

// peripherals is the folder of QEMU's devices that have an id.
const peripherals = "/machine/peripheral"

// Bounds of what QEMU is believed to have: more than a machine has ports for, and than a name may have characters.
const (
	maxNICs    = 256
	maxNICName = 63
)

// nics is what is known of the interfaces of this QEMU, by their names.
type nics struct {
	// present are those that QEMU has; gone are those that it had, whose backends have not been removed.
	present, gone map[string]bool
	// asked is when the guest was asked last to release one, since when it was asked first, plugged when one
	// was plugged.
	asked, since, plugged map[string]time.Time
	// stale asks QEMU again.
	stale bool
}

// NICs are the interfaces of a QEMU as far as they are known.
type NICs struct {
	Present, Gone         map[string]bool
	Asked, Since, Plugged map[string]time.Time
}

func (n *nics) facts() NICs {
	return NICs{maps.Clone(n.present), maps.Clone(n.gone), maps.Clone(n.asked), maps.Clone(n.since), maps.Clone(n.plugged)}
}

// with is what is known when QEMU has said which interfaces it has.
func (n nics) with(present map[string]bool) nics {
	next := nics{present: present, gone: maps.Clone(n.gone), asked: maps.Clone(n.asked), since: maps.Clone(n.since), plugged: n.plugged}
	for name := range n.present {
		if !present[name] {
			next.gone[name] = true
			delete(next.asked, name)
			delete(next.since, name)
		}
	}
	return next
}

// learnNICs asks QEMU which interfaces it has. It keeps its own list, whoever has plugged them.
func (g *Guest) learnNICs(ctx context.Context) error {
	g.mu.Lock()
	g.nics.stale = false
	g.mu.Unlock()
	var list []object
	if err := g.monitor.Execute(ctx, "qom-list", map[string]any{"path": peripherals}, &list); err != nil {
		return fmt.Errorf("asking QEMU for its devices: %w", err)
	}
	present := map[string]bool{}
	for id := range names(list) {
		// QEMU may be its guest's by now, and says what it likes.
		if name, ok := strings.CutPrefix(id, machine.NICID("")); ok && len(name) <= maxNICName && len(present) < maxNICs {
			present[name] = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nics = g.nics.with(present)
	return nil
}

// refreshNICs follows up on an event.
func (g *Guest) refreshNICs(ctx context.Context) {
	g.mu.Lock()
	stale := g.nics.stale
	g.mu.Unlock()
	if !stale {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := g.learnNICs(ctx); err != nil {
		// As in Refresh: the next event, or the next look, asks again.
		g.env.Log.V(1).Info("QEMU did not say which interfaces it has", "reason", err.Error())
	}
}

// noteDeleted notes that a device has gone, and reports whether it was an interface.
func (g *Guest) noteDeleted(e qmp.Event) bool {
	if e.Name != "DEVICE_DELETED" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nics.stale = true
	return true
}

// PlugNIC brings an interface into the machine. It can be repeated: what an earlier attempt has left is replaced.
func (g *Guest) PlugNIC(ctx context.Context, name string, netdev, device machine.Properties) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := g.execute(ctx, "netdev_add", netdev)
	if duplicate(err) {
		if err = g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}); err == nil {
			err = g.execute(ctx, "netdev_add", netdev)
		}
	}
	if err != nil {
		return fmt.Errorf("having QEMU open the network of interface %s: %w", name, err)
	}
	if err := g.execute(ctx, "device_add", device); err != nil {
		undo := g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)})
		return fmt.Errorf("plugging interface %s: %w", name, errors.Join(err, undo))
	}
	g.env.Log.Info("plugged an interface", "interface", name)
	g.mu.Lock()
	g.nics.plugged[name] = g.env.Now()
	delete(g.nics.gone, name)
	delete(g.links, name) // QEMU has switched it on
	g.mu.Unlock()
	return g.learnNICs(ctx)
}

// duplicate reports whether QEMU has a backend of the name.
func duplicate(err error) bool {
	var refusal *qmp.Error
	return errors.As(err, &refusal) && strings.Contains(strings.ToLower(refusal.Desc), "duplicate id")
}

// missing reports whether QEMU has no device or backend of the name.
func missing(err error) bool {
	var refusal *qmp.Error
	return errors.As(err, &refusal) && refusal.Class == "DeviceNotFound"
}

// UnplugNIC asks the guest to release an interface, which QEMU reports when it has. It can be repeated.
func (g *Guest) UnplugNIC(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := g.execute(ctx, "device_del", map[string]any{"id": machine.NICID(name)})
	var refusal *qmp.Error
	switch {
	case missing(err):
		return g.learnNICs(ctx)
	case errors.As(err, &refusal) && strings.Contains(refusal.Desc, "already in the process of unplug"):
		// The guest is thinking.
	case err != nil:
		return fmt.Errorf("unplugging interface %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nics.asked[name] = g.env.Now()
	if _, before := g.nics.since[name]; !before {
		g.nics.since[name] = g.env.Now()
	}
	return nil
}

// ClearNIC removes the backend of an interface that the guest has released. It can be repeated.
func (g *Guest) ClearNIC(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := g.execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}); err != nil && !missing(err) {
		return fmt.Errorf("having QEMU close the network of interface %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.nics.gone, name)
	delete(g.links, name)
	return nil
}

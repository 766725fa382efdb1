package driver

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// reasonLate is the event of a guest that is started without some of its volumes.
const reasonLate = "StartedWithoutVolumes"

// isHalted reports whether the guest's CPUs have never been started, because they
// wait for volumes (vmi.Halt). state is QEMU's run state. The marker of a guest that
// has run is removed: it is left when virt-handler dies between the two steps.
func (g *guest) isHalted(ctx context.Context, state string) (bool, error) {
	marked, err := g.hasMarker(ctx, machine.WaitMarker)
	if err != nil || !marked {
		return false, err
	}
	if state == runstate.Prelaunch {
		return true, nil
	}
	return false, g.removeMarker(ctx, machine.WaitMarker)
}

// askMarkers asks for what QEMU keeps for virt-handler, as far as it means
// something in a run state.
func (g *guest) askMarkers(ctx context.Context, state string) (paused, halted bool, err error) {
	if !g.begun {
		halted, err = g.isHalted(ctx, state)
		if err != nil {
			return false, false, err
		}
		g.begun = !halted
	}
	if halted || state == runstate.IOError {
		paused, err = g.hasMarker(ctx, machine.PauseMarker)
	}
	return paused, halted, err
}

// halt is what is decided about a guest whose CPUs have not been started; nil if
// they have. The caller holds d.mu, and the guest is attached.
func (d *Driver) halt() *vmi.Halt {
	if !d.guest.halted || d.vmi == nil {
		return nil
	}
	h := vmi.DecideHalt(d.vmi, d.guest.plugs.Plugged(d.vmi), d.env.Now())
	return &h
}

// begin starts the CPUs of a guest for the first time, unless its user wants it
// paused. The firmware reads the boot order at a reset, so there is one before.
func (d *Driver) begin(ctx context.Context, instance *v1.VirtualMachineInstance) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	g := d.guest
	g.power.Lock()
	defer g.power.Unlock()
	defer func() {
		d.mu.Lock()
		g.stale = true
		d.mu.Unlock()
	}()
	state, err := g.queryStatus(ctx)
	if err != nil {
		return err
	}
	if halted, err := g.isHalted(ctx, state); err != nil || !halted {
		return err
	}
	plugged := g.plugs.Plugged(instance)
	if err := g.orderBoot(ctx, machine.BootIndexes(&instance.Spec, plugged)); err != nil {
		return err
	}
	if err := g.resetHalted(ctx); err != nil {
		return err
	}
	if err := g.letBegin(ctx); err != nil {
		return fmt.Errorf("starting the guest's CPUs: %w", err)
	}
	if late := vmi.DecideHalt(instance, plugged, d.env.Now()).LateMessage(); late != "" {
		d.env.Cluster.Event(instance, corev1.EventTypeWarning, reasonLate, late)
	}
	return nil
}

func (g *guest) orderBoot(ctx context.Context, places []machine.BootIndex) error {
	for _, place := range places {
		args := map[string]any{"path": "/machine/peripheral/" + place.Device, "property": "bootindex", "value": place.Index}
		if err := g.monitor.Execute(ctx, "qom-set", args, nil); err != nil {
			return fmt.Errorf("setting the place of %s in the boot order: %w", place.Device, err)
		}
	}
	return nil
}

// resetHalted resets a machine whose CPUs are stopped, and waits until that is
// done: QEMU answers the command before.
func (g *guest) resetHalted(ctx context.Context) error {
	select {
	case <-g.resets: // of an earlier reset
	default:
	}
	if err := g.monitor.Execute(ctx, "system_reset", nil, nil); err != nil {
		return err
	}
	select {
	case <-g.resets:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for QEMU to reset the machine: %w", ctx.Err())
	}
}

// letBegin starts the CPUs and then removes the marker, in this order: one that
// dies in between leaves a guest that runs. A guest that its user has paused stays
// in prelaunch, which without WaitMarker means just that.
func (g *guest) letBegin(ctx context.Context) error {
	paused, err := g.hasMarker(ctx, machine.PauseMarker)
	if err != nil {
		return err
	}
	if !paused {
		if err := g.monitor.Execute(ctx, "cont", nil, nil); err != nil {
			return err
		}
	}
	return g.removeMarker(ctx, machine.WaitMarker)
}

// pauseHalted notes that the user wants a guest paused that waits for volumes.
func (m *Machine) pauseHalted(ctx context.Context) error {
	paused, err := m.guest.hasMarker(ctx, machine.PauseMarker)
	if err == nil && paused {
		err = m.conflict("VMI is already paused")
	}
	if err != nil {
		return err
	}
	return m.guest.setPauseMarker(ctx, true)
}

// unpauseHalted takes that back. The guest starts when its volumes are there.
func (m *Machine) unpauseHalted(ctx context.Context) error {
	paused, err := m.guest.hasMarker(ctx, machine.PauseMarker)
	if err == nil && !paused {
		err = m.conflict("VMI is not paused: it waits for volumes before it starts")
	}
	if err != nil {
		return err
	}
	return m.guest.setPauseMarker(ctx, false)
}

// removeMarker removes a marker that is there, or was until a moment ago.
func (g *guest) removeMarker(ctx context.Context, marker string) error {
	err := g.monitor.Execute(ctx, "object-del", map[string]any{"id": marker}, nil)
	if err == nil {
		return nil
	}
	have, asking := g.hasMarker(ctx, marker)
	if asking != nil || have {
		return errors.Join(err, asking)
	}
	return nil
}

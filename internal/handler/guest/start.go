package guest

import (
	"context"
	"fmt"

	"drydock.dev/drydock/internal/rules/machine"
)

// Start starts the CPUs of a halted guest for the first time, unless its user wants it paused. It resets the machine
// before, since the firmware reads the boot order at a reset. started is false if the guest is no longer halted.
func (g *Guest) Start(ctx context.Context, order []machine.BootIndex) (started bool, err error) {
	err = g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if !o.Halted {
			return nil
		}
		for _, place := range order {
			args := map[string]any{"path": "/machine/peripheral/" + place.Device, "property": "bootindex", "value": place.Index}
			if err := g.execute(ctx, "qom-set", args); err != nil {
				return fmt.Errorf("setting the place of %s in the boot order: %w", place.Device, err)
			}
		}
		if err := g.resetAndWait(ctx); err != nil {
			return err
		}
		// The marker goes last: if virt-handler dies in between, the guest runs. A paused guest without it stays in
		// prelaunch.
		var err error
		if !o.Paused {
			err = g.execute(ctx, "cont", nil)
		}
		if err == nil {
			err = g.removeMarker(ctx, machine.WaitMarker)
		}
		if err != nil {
			return fmt.Errorf("starting the guest's CPUs: %w", err)
		}
		started = true
		return nil
	})
	return started, err
}

// QEMU answers the command before the reset.
func (g *Guest) resetAndWait(ctx context.Context) error {
	select {
	case <-g.resets: // of an earlier reset
	default:
	}
	if err := g.execute(ctx, "system_reset", nil); err != nil {
		return err
	}
	select {
	case <-g.resets:
		return nil
	case <-g.monitor.Done():
		return fmt.Errorf("waiting for QEMU to reset the machine: %w", g.monitor.Err())
	case <-ctx.Done():
		return fmt.Errorf("waiting for QEMU to reset the machine: %w", ctx.Err())
	}
}

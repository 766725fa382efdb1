package runcontrol

import (
	"context"
	"fmt"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/rules/machine"
)

// Start starts the CPUs of a halted guest for the first time, unless its user wants it paused. It resets the machine
// before, because the firmware reads the boot order then. started is false if the guest is no longer halted.
func (c Control) Start(ctx context.Context, order []machine.BootIndex) (started bool, err error) {
	err = c.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if !o.Halted {
			return nil
		}
		for _, place := range order {
			args := map[string]any{"path": "/machine/peripheral/" + place.Device, "property": "bootindex", "value": place.Index}
			if err := c.guest.Execute(ctx, "qom-set", args); err != nil {
				return fmt.Errorf("setting the place of %s in the boot order: %w", place.Device, err)
			}
		}
		if err := c.resetAndWait(ctx); err != nil {
			return err
		}
		// The marker goes last: if virt-handler dies in between, the guest runs. A paused guest without it stays in
		// prelaunch.
		var err error
		if !o.Paused {
			err = c.guest.Execute(ctx, "cont", nil)
		}
		if err == nil {
			err = c.guest.Markers().Remove(ctx, machine.WaitMarker)
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
func (c Control) resetAndWait(ctx context.Context) error {
	select {
	case <-c.guest.Resets(): // of an earlier reset
	default:
	}
	if err := c.guest.Execute(ctx, "system_reset", nil); err != nil {
		return err
	}
	select {
	case <-c.guest.Resets():
		return nil
	case <-c.guest.Monitor().Done():
		return fmt.Errorf("waiting for QEMU to reset the machine: %w", c.guest.Monitor().Err())
	case <-ctx.Done():
		return fmt.Errorf("waiting for QEMU to reset the machine: %w", ctx.Err())
	}
}

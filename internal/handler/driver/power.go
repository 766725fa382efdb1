package driver

import (
	"context"
	"fmt"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// Pause stops the guest's CPUs. It succeeds only if they are stopped because of
// it, and stay so until Unpause.
func (m *Machine) Pause(ctx context.Context) error {
	return m.inState(ctx, func(ctx context.Context, state runstate.State) error {
		switch halted, err := m.guest.isHalted(ctx, state.Name); {
		case err != nil:
			return err
		case halted:
			return m.pauseHalted(ctx)
		}
		if state.Outlook != runstate.Runs && state.Name != runstate.IOError {
			return m.refusePause(state)
		}
		if err := m.guest.monitor.Execute(ctx, "stop", nil, nil); err != nil {
			return err
		}
		// An error of a disk, or of QEMU's, may have been faster.
		name, err := m.guest.queryStatus(ctx)
		switch state = runstate.Of(name); {
		case err != nil:
			return err
		case state.Name == runstate.IOError:
			return m.guest.setPauseMarker(ctx, true)
		case state.Reason != runstate.ReasonPausedByUser:
			return m.refusePause(state)
		}
		return nil
	})
}

func (m *Machine) refusePause(state runstate.State) error {
	if state.Paused {
		return m.conflict("VMI is already paused")
	}
	return m.conflict("VMI cannot be paused: " + state.Message)
}

// Unpause has a guest continue that is stopped and can, whatever has stopped it.
func (m *Machine) Unpause(ctx context.Context) error {
	return m.inState(ctx, func(ctx context.Context, state runstate.State) error {
		halted, err := m.guest.isHalted(ctx, state.Name)
		switch {
		case err != nil:
			return err
		case halted:
			return m.unpauseHalted(ctx)
		case state.Outlook == runstate.Runs:
			return m.conflict("VMI is not paused")
		case state.Outlook != runstate.Waits:
			return m.conflict("VMI cannot be unpaused: " + state.Message)
		case state.Name == runstate.Suspended:
			return m.guest.monitor.Execute(ctx, "system_wakeup", nil, nil)
		}
		// In this order: one that dies in between leaves a guest that an I/O error
		// has stopped, and that is resumed anyway.
		if err := m.guest.setPauseMarker(ctx, false); err != nil {
			return err
		}
		return m.guest.monitor.Execute(ctx, "cont", nil, nil)
	})
}

// Reset is the reset button. A guest that its user has paused stays paused.
func (m *Machine) Reset(ctx context.Context) error {
	return m.inState(ctx, func(ctx context.Context, state runstate.State) error {
		if state.Outlook != runstate.Runs && state.Outlook != runstate.Waits {
			return m.conflict("VMI cannot be reset: " + state.Message)
		}
		paused, err := m.guest.hasMarker(ctx, machine.PauseMarker)
		if err != nil {
			return err
		}
		if err := m.guest.monitor.Execute(ctx, "system_reset", nil, nil); err != nil {
			return err
		}
		if state.Name == runstate.IOError && !paused {
			return m.continueReset(ctx)
		}
		return nil
	})
}

// resetPause is how often QEMU is asked whether it has reset the guest.
const resetPause = 10 * time.Millisecond

// continueReset has a guest run that an I/O error had stopped and that is being
// reset: QEMU keeps a stopped guest stopped. One that continues before the reset
// would only meet its error again.
func (m *Machine) continueReset(ctx context.Context) error {
	ticker := time.NewTicker(resetPause)
	defer ticker.Stop()
	for {
		name, err := m.guest.queryStatus(ctx)
		if err != nil {
			return err
		}
		if name != runstate.IOError {
			return m.guest.monitor.Execute(ctx, "cont", nil, nil)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for QEMU to reset the guest: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// SoftReboot asks the agent to reboot the guest, or, without an agent, presses
// Ctrl-Alt-Del, which most systems take for the same wish.
func (m *Machine) SoftReboot(ctx context.Context) error {
	m.d.mu.Lock()
	hasAgent, halted, state := m.guest.agentOpen, m.guest.halted, runstate.Of(m.guest.runState)
	m.d.mu.Unlock()
	switch {
	case halted:
		return m.conflict("VMI cannot be rebooted: it waits for volumes before it starts")
	case state.Paused:
		return m.conflict("VMI is paused")
	case state.Outlook != runstate.Runs:
		return m.conflict("VMI cannot be rebooted: " + state.Message)
	}
	if hasAgent {
		err := m.guest.withAgent(ctx, func(ctx context.Context, a *agent.Client) error { return a.Shutdown(ctx, "reboot") })
		if err == nil || !agent.Unsupported(err) {
			return err
		}
	}
	type key struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	keys := []key{{"qcode", "ctrl"}, {"qcode", "alt"}, {"qcode", "delete"}}
	return m.execute(ctx, "send-key", map[string]any{"keys": keys})
}

// inState does something that depends on the guest's run state, while nobody else
// of this virt-handler changes it, and has the driver look at what has come of it.
func (m *Machine) inState(ctx context.Context, do func(context.Context, runstate.State) error) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	m.guest.power.Lock()
	defer m.guest.power.Unlock()
	name, err := m.guest.queryStatus(ctx)
	if err != nil {
		return err
	}
	defer func() {
		m.d.mu.Lock()
		m.guest.stale = true
		m.d.mu.Unlock()
		m.d.poke()
	}()
	return do(ctx, runstate.Of(name))
}

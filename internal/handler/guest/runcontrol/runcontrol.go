// Package runcontrol starts, stops, resumes and resets a guest: for users, after an error, and when the CPUs have waited
// for volumes.
//
// Package power decides by QEMU's current state, and this package acts. It must not decide when a guest is resumed or
// started, and keeps nothing.
package runcontrol

import (
	"context"
	"fmt"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Control is the run control of one guest. Only its owner's goroutine uses it.
type Control struct{ guest *guest.Guest }

// Of returns the run control of a guest.
func Of(g *guest.Guest) Control { return Control{g} }

// HandleRequest acts on a user's request, or returns a *power.Refusal. A reboot is only decided: the owner asks the
// guest's agent for it.
func (c Control) HandleRequest(ctx context.Context, r power.Request) error {
	return c.decideAndAct(ctx, func(o guest.Observation) power.Decision { return power.Decide(r, o.Guest) })
}

// Resume continues a guest that was stopped by an I/O error or for a migration that has failed.
func (c Control) Resume(ctx context.Context) error {
	attempt := c.guest.CountResume()
	defer c.guest.Invalidate()
	err := c.decideAndAct(ctx, func(o guest.Observation) power.Decision {
		d := power.DecideResume(o.Guest)
		if d.Action == power.Proceed {
			c.guest.Log().V(1).Info("telling a guest to continue that stands still", "runState", o.State.Name, "attempt", attempt)
		}
		return d
	})
	if err != nil {
		return fmt.Errorf("resuming the guest: %w", err)
	}
	return nil
}

func (c Control) decideAndAct(ctx context.Context, decide func(guest.Observation) power.Decision) error {
	return c.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error { return c.act(ctx, o, decide(o)) })
}

func (c Control) act(ctx context.Context, o guest.Observation, d power.Decision) error {
	switch d.Action {
	case power.Stop:
		return c.stop(ctx, o)
	case power.Proceed:
		// The marker goes first: if virt-handler dies in between, the next one resumes the guest: an I/O error has stopped it.
		if err := c.removePauseMarker(ctx, o); err != nil {
			return err
		}
		return c.guest.Execute(ctx, "cont", nil)
	case power.WakeUp:
		return c.guest.Execute(ctx, "system_wakeup", nil)
	case power.Mark:
		return c.guest.Markers().Add(ctx, machine.PauseMarker)
	case power.Unmark:
		return c.removePauseMarker(ctx, o)
	case power.PushReset:
		return c.guest.Execute(ctx, "system_reset", nil)
	case power.ResetAndRun:
		return c.resetAndRun(ctx)
	case power.CtrlAltDel:
		return c.pressKeys(ctx, "ctrl", "alt", "delete")
	}
	return d.Refusal()
}

func (c Control) removePauseMarker(ctx context.Context, o guest.Observation) error {
	if !o.Paused {
		return nil
	}
	return c.guest.Markers().Remove(ctx, machine.PauseMarker)
}

func (c Control) stop(ctx context.Context, o guest.Observation) error {
	if err := c.guest.Execute(ctx, "stop", nil); err != nil {
		return err
	}
	// virt-launcher may have begun to hold the guest just before: the markers say so.
	seen, err := c.guest.Query(ctx)
	if err != nil {
		return err
	}
	return c.act(ctx, o, power.DecideStopped(seen.State))
}

const resetPause = 10 * time.Millisecond

// A guest that an I/O error has stopped stays stopped after a reset. Continuing it before the reset repeats the error.
func (c Control) resetAndRun(ctx context.Context) error {
	if err := c.guest.Execute(ctx, "system_reset", nil); err != nil {
		return err
	}
	ticker := time.NewTicker(resetPause)
	defer ticker.Stop()
	for {
		name, err := guest.QueryStatus(ctx, c.guest.Monitor())
		if err != nil {
			return err
		}
		if name != runstate.IOError {
			return c.guest.Execute(ctx, "cont", nil)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for QEMU to reset the guest: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// The names are QEMU's (QKeyCode).
func (c Control) pressKeys(ctx context.Context, names ...string) error {
	type key struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	var keys []key
	for _, name := range names {
		keys = append(keys, key{"qcode", name})
	}
	if err := c.guest.Execute(ctx, "send-key", map[string]any{"keys": keys}); err != nil {
		return fmt.Errorf("pressing keys: %w", err)
	}
	return nil
}

package guest

import (
	"context"
	"fmt"
	"time"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Obey acts on a user's request, or returns a *power.Refusal. A reboot is only decided on: the owner asks the guest's
// agent.
func (g *Guest) Obey(ctx context.Context, r power.Request) error {
	return g.decideAndAct(ctx, func(o observation) power.Decision { return power.Decide(r, o.Guest) })
}

// Resume continues a guest that was stopped by an I/O error or for a migration that has failed.
func (g *Guest) Resume(ctx context.Context) error {
	g.mu.Lock()
	g.known.stall = g.known.stall.AfterResume(g.env.Now())
	attempt := g.known.stall.Attempts()
	g.mu.Unlock()
	defer g.invalidate()
	err := g.decideAndAct(ctx, func(o observation) power.Decision {
		d := power.DecideResume(o.Guest)
		if d.Action == power.Proceed {
			g.env.Log.V(1).Info("telling a guest to continue that stands still", "runState", o.State.Name, "attempt", attempt)
		}
		return d
	})
	if err != nil {
		return fmt.Errorf("resuming the guest: %w", err)
	}
	return nil
}

func (g *Guest) decideAndAct(ctx context.Context, decide func(observation) power.Decision) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error { return g.act(ctx, o, decide(o)) })
}

func (g *Guest) act(ctx context.Context, o observation, d power.Decision) error {
	switch d.Action {
	case power.Stop:
		return g.stop(ctx, o)
	case power.Proceed:
		// Unmark first: if virt-handler dies in between, the guest is stopped by an I/O error and is resumed anyway.
		if err := g.removePauseMarker(ctx, o); err != nil {
			return err
		}
		return g.execute(ctx, "cont", nil)
	case power.WakeUp:
		return g.execute(ctx, "system_wakeup", nil)
	case power.Mark:
		return g.addMarker(ctx, machine.PauseMarker)
	case power.Unmark:
		return g.removePauseMarker(ctx, o)
	case power.PushReset:
		return g.execute(ctx, "system_reset", nil)
	case power.ResetAndRun:
		return g.resetAndRun(ctx)
	case power.CtrlAltDel:
		return g.pressKeys(ctx, "ctrl", "alt", "delete")
	}
	return d.Refusal()
}

func (g *Guest) removePauseMarker(ctx context.Context, o observation) error {
	if !o.Paused {
		return nil
	}
	return g.removeMarker(ctx, machine.PauseMarker)
}

func (g *Guest) stop(ctx context.Context, o observation) error {
	if err := g.execute(ctx, "stop", nil); err != nil {
		return err
	}
	// virt-launcher may have begun to hold the guest just before, which the markers show.
	seen, err := g.queryAll(ctx)
	if err != nil {
		return err
	}
	return g.act(ctx, o, power.DecideStopped(runstate.Of(seen.runState)))
}

const resetPause = 10 * time.Millisecond

// QEMU keeps a guest that an I/O error has stopped so across a reset. Continuing it before would only repeat the error.
func (g *Guest) resetAndRun(ctx context.Context) error {
	if err := g.execute(ctx, "system_reset", nil); err != nil {
		return err
	}
	ticker := time.NewTicker(resetPause)
	defer ticker.Stop()
	for {
		name, err := g.queryStatus(ctx)
		if err != nil {
			return err
		}
		if name != runstate.IOError {
			return g.execute(ctx, "cont", nil)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for QEMU to reset the guest: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

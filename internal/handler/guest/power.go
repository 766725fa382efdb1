package guest

import (
	"context"
	"fmt"
	"time"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// Pause keeps the guest's CPUs stopped until Unpause, also if an I/O error has stopped them. It returns a *Refusal if
// the state does not allow that.
func (g *Guest) Pause(ctx context.Context) error { return g.decideAndAct(ctx, decidePause) }

// Unpause continues a stopped guest that can run, whatever has stopped it. It returns a *Refusal if that is not
// possible.
func (g *Guest) Unpause(ctx context.Context) error { return g.decideAndAct(ctx, decideUnpause) }

// Reset presses the reset button. A guest that its user has paused stays paused. It returns a *Refusal if a reset is
// not possible.
func (g *Guest) Reset(ctx context.Context) error { return g.decideAndAct(ctx, decideReset) }

// CheckReboot returns a *Refusal for a guest that can't be asked to reboot.
func (g *Guest) CheckReboot() error {
	if message := decideReboot(g.Observe()); message != "" {
		return &Refusal{message}
	}
	return nil
}

// Resume continues a guest that was stopped by an I/O error or for a migration that has failed. Whether the guest
// keeps running depends on its disks.
func (g *Guest) Resume(ctx context.Context) error {
	g.mu.Lock()
	g.known.stall = g.known.stall.AfterResume(g.env.Now())
	attempt := g.known.stall.Attempts()
	g.mu.Unlock()
	defer g.invalidate()
	err := g.decideAndAct(ctx, func(o observation) decision {
		d := decideResume(o)
		if d.action == proceed {
			g.env.Log.V(1).Info("telling a guest to continue that stands still", "runState", o.state.Name, "attempt", attempt)
		}
		return d
	})
	if err != nil {
		return fmt.Errorf("resuming the guest: %w", err)
	}
	return nil
}

func (g *Guest) decideAndAct(ctx context.Context, decide func(observation) decision) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error { return g.act(ctx, o, decide(o)) })
}

func (g *Guest) act(ctx context.Context, o observation, d decision) error {
	switch d.action {
	case refuse:
		return &Refusal{d.message}
	case stop:
		return g.stop(ctx, o)
	case proceed:
		// Unmark first: if virt-handler dies in between, the guest is stopped by an I/O error and is resumed anyway.
		if err := g.removePauseMarker(ctx, o); err != nil {
			return err
		}
		return g.execute(ctx, "cont", nil)
	case wakeUp:
		return g.execute(ctx, "system_wakeup", nil)
	case mark:
		return g.addMarker(ctx, machine.PauseMarker)
	case unmark:
		return g.removePauseMarker(ctx, o)
	case reset:
		return g.execute(ctx, "system_reset", nil)
	case resetAndRun:
		return g.resetAndRun(ctx)
	}
	return nil
}

func (g *Guest) removePauseMarker(ctx context.Context, o observation) error {
	if !o.paused {
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
	return g.act(ctx, o, decideStopped(runstate.Of(seen.runState)))
}

const resetPause = 10 * time.Millisecond

// resetAndRun runs a guest that an I/O error has stopped: QEMU keeps a stopped guest stopped across a reset.
// Continuing it before the reset would only repeat the error.
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

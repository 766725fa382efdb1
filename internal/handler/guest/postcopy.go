package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// In a post-copy the guest moves before its memory. Each marker is set before the step that it records (decision 362).

// SwitchToPostCopy makes a source's guest move before the rest of its memory. If the migration fails before that, QEMU
// leaves the guest stopped, and the marker gets it resumed.
func (g *Guest) SwitchToPostCopy(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		m := &o.migration
		if m.Begun != migration || m.Status != migrationstatus.Active || o.State.Outlook != runstate.Runs {
			return nil
		}
		if err := g.addMarker(ctx, machine.PausedMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that is to move before its memory: %w", err)
		}
		if err := g.execute(ctx, "migrate-start-postcopy", nil); err != nil {
			return fmt.Errorf("having the guest move before its memory: %w", err)
		}
		return nil
	})
}

var errNotMoved = errors.New("this QEMU does not send its guest's memory after the guest")

// MarkLeft marks a source whose guest has moved, so that it never continues here.
func (g *Guest) MarkLeft(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || !o.migration.Status.PostCopy() {
			return errNotMoved
		}
		if err := g.addMarker(ctx, machine.LeftMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that has left: %w", err)
		}
		return nil
	})
}

// Recover makes a source send the rest of a post-copy to a socket of QEMU's. It must not be repeated until QEMU has
// left the status and come back to it: a second connection during the first attempt ends QEMU 7.2.
func (g *Guest) Recover(ctx context.Context, migration types.UID, socket string) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || o.migration.Status != migrationstatus.PostCopyPaused {
			return nil
		}
		if err := g.execute(ctx, "migrate", map[string]any{"uri": "unix:" + socket, "resume": true}); err != nil {
			return fmt.Errorf("having QEMU send the rest of the guest's memory: %w", err)
		}
		return nil
	})
}

// RecoverIncoming makes a target receive the rest of a post-copy from a socket of QEMU's.
func (g *Guest) RecoverIncoming(ctx context.Context, migration types.UID, socket string) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Incoming != migration || o.migration.Status != migrationstatus.PostCopyPaused {
			return nil
		}
		err := g.execute(ctx, "migrate-recover", map[string]any{"uri": "unix:" + socket})
		var no *qmp.Error
		if errors.As(err, &no) && strings.Contains(no.Desc, "Migrate recovery is triggered already") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("having QEMU wait for the rest of its guest's memory: %w", err)
		}
		return nil
	})
}

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

// Post-copy: the guest moves before its memory. The marks are set before what they are about (decision 362).

// SwitchToPostCopy has a source's guest move before the rest of its memory. When the migration fails after that and
// the guest has not moved, QEMU leaves it stopped: the marker has it go on.
func (g *Guest) SwitchToPostCopy(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		m := &o.migration
		if m.Begun != migration || m.Status != migrationstatus.Active || o.state.Outlook != runstate.Runs {
			return nil
		}
		if err := g.addMarker(ctx, machine.PausedMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that is to move before its memory: %w", err)
		}
		g.postCopy = true
		if err := g.execute(ctx, "migrate-start-postcopy", nil); err != nil {
			return fmt.Errorf("having the guest move before its memory: %w", err)
		}
		return nil
	})
}

// errNotMoved is of a source that has not begun to send the memory that follows its guest.
var errNotMoved = errors.New("this QEMU does not send its guest's memory after the guest")

// MarkLeft marks a source whose guest has moved before its memory, so that it never goes on here.
func (g *Guest) MarkLeft(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || !o.migration.Status.PostCopy() {
			return errNotMoved
		}
		if err := g.addMarker(ctx, machine.LeftMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that has left: %w", err)
		}
		return nil
	})
}

// Recover has a source send the rest of a post-copy to a socket, as QEMU sees it. It must not be repeated before QEMU
// has left the status and come back: a second connection on the way ends QEMU 7.2.
func (g *Guest) Recover(ctx context.Context, migration types.UID, socket string) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || o.migration.Status != migrationstatus.PostCopyPaused {
			return nil
		}
		if err := g.execute(ctx, "migrate", map[string]any{"uri": "unix:" + socket, "resume": true}); err != nil {
			return fmt.Errorf("having QEMU send the rest of the guest's memory: %w", err)
		}
		return nil
	})
}

// RecoverIncoming has a target take the rest of a post-copy from a socket, as QEMU sees it.
func (g *Guest) RecoverIncoming(ctx context.Context, migration types.UID, socket string) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
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

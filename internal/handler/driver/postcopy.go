package driver

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// recoverAgain is how long a new connection may remain without effect. QEMU reports a connection at once; a second
// attempt during the first would end it.
const recoverAgain = 3 * time.Second

// recoveryDue reports whether to tell QEMU to resume a broken post-copy: once for each break, and again if that had no
// effect.
func (d *Driver) recoveryDue(status migrationstatus.Status) bool {
	if status != migrationstatus.PostCopyPaused {
		d.moving.recovered = time.Time{}
		return false
	}
	return d.moving.recovered.IsZero() || d.env.Now().Sub(d.moving.recovered) >= recoverAgain
}

func (d *Driver) postCopy(ctx context.Context, action switchover.SourceAction, of types.UID, g *guest.Guest) error {
	source := d.moving.source
	switch {
	case action == switchover.MarkLeft:
		if source != nil {
			source.Leaves()
		}
		return g.MarkLeft(ctx, of)
	case source == nil:
		return errors.New("the way to the migration's target has ended")
	case action == switchover.SwitchToPostCopy:
		err := g.SwitchToPostCopy(ctx, of)
		if err == nil {
			source.Switches()
		}
		return err
	}
	if err := d.forward(ctx, source, migrationwire.Stream, layout.MigrationSocket); err != nil {
		return err
	}
	d.moving.recovered = d.env.Now()
	return g.Recover(ctx, of, layout.Socket(layout.MigrationSocket))
}

func (d *Driver) recoverIncoming(ctx context.Context, s snapshot, o vmihandler.Observed) error {
	d.moving.recovered = d.env.Now()
	of := o.VMI.Status.MigrationState.MigrationUID
	d.log.Info("waiting for the rest of the guest's memory", "migration", of)
	return s.attached.guest.RecoverIncoming(ctx, of, layout.Socket(layout.MigrationSocket))
}

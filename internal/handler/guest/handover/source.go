// Package handover commands a QEMU in a migration: a Source sends its guest, a Target takes it.
//
// Each command depends on QEMU's current state. A marker precedes each step of which the next virt-handler must know. The
// package must not decide when a command is due, and knows no VMI and no other node.
package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/qemu/memoryhotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Source is a QEMU that sends its guest. Only its owner's goroutine commands it.
type Source struct{ guest *guest.Guest }

// SourceOf returns the commands of a source.
func SourceOf(g *guest.Guest) Source { return Source{g} }

// Begin has the parameters of a migration.
type Begin struct {
	Migration    types.UID
	Socket       string // a path of QEMU's
	Bandwidth    int64  // bytes per second; 0 for no limit
	AutoConverge bool
	Downtime     time.Duration
	Transport    switchover.Transport
}

// noLimit, in bytes per second, replaces QEMU's default, which is a limit.
const noLimit = 1 << 50

func (b *Begin) parameters() map[string]any {
	bandwidth := b.Bandwidth
	if bandwidth <= 0 {
		bandwidth = noLimit
	}
	parameters := map[string]any{"max-bandwidth": bandwidth, downtimeLimit: b.Downtime.Milliseconds()}
	if b.Transport.PostCopy {
		parameters["max-postcopy-bandwidth"] = bandwidth
	}
	return parameters
}

const downtimeLimit = "downtime-limit" // in milliseconds

// SetDowntime sets the limit: a source stops its guest when it expects to send the rest within it.
func (s Source) SetDowntime(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := s.guest.Execute(ctx, "migrate-set-parameters", map[string]any{downtimeLimit: limit.Milliseconds()}); err != nil {
		return fmt.Errorf("setting how long the guest may stand still: %w", err)
	}
	return nil
}

// Begin makes QEMU send the guest, or returns a *power.Refusal.
func (s Source) Begin(ctx context.Context, b Begin) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if err := power.DecideSend(o.Guest).Refusal(); err != nil {
			return err
		}
		s.guest.ExpectMigration()
		return s.sendMigrate(ctx, b, o.KVM)
	})
}

// sendMigrate marks QEMU first: if virt-handler dies in between, the status none counts as a failed migration.
func (s Source) sendMigrate(ctx context.Context, b Begin, kvm bool) error {
	err := setTransport(ctx, s.guest, b.Transport, capability{"events", true}, capability{"return-path", true},
		capability{"pause-before-switchover", true}, capability{"auto-converge", b.AutoConverge})
	if err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	if err := s.guest.Execute(ctx, "migrate-set-parameters", b.parameters()); err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	objects, err := s.guest.Markers().List(ctx)
	if err != nil {
		return err
	}
	for _, marker := range machine.Outdated(objects, b.Migration) {
		if err := s.guest.Markers().Remove(ctx, marker); err != nil {
			return err
		}
	}
	if err := s.guest.Markers().Add(ctx, machine.BegunMarker(b.Migration)); err != nil {
		return err
	}
	loses, err := s.losesWrites(ctx, kvm)
	if err == nil && loses {
		// Writes after the first byte is sent would stay behind.
		err = s.pauseForMigration(ctx, b.Migration)
	}
	if err != nil {
		return err
	}
	if err := s.guest.Execute(ctx, "migrate", map[string]any{"uri": "unix:" + b.Socket}); err != nil {
		return fmt.Errorf("beginning the migration: %w", err)
	}
	return nil
}

func (s Source) losesWrites(ctx context.Context, kvm bool) (bool, error) {
	if kvm {
		return false, nil
	}
	is, err := memoryhotplug.Ask(ctx, s.guest.Monitor(), machine.MemoryDevice, machine.MostRoom)
	if is == nil || err != nil {
		return false, err
	}
	return vmihandler.LosesWrites(kvm, vmihandler.Memory{Requested: is.Requested, Size: is.Size}), nil
}

// The marker comes first: if virt-handler dies in between, the guest runs.
func (s Source) pauseForMigration(ctx context.Context, migration types.UID) error {
	if err := s.guest.Markers().Add(ctx, machine.PausedMarker(migration)); err != nil {
		return fmt.Errorf("marking a guest that is to be stopped for its migration: %w", err)
	}
	if err := s.guest.Execute(ctx, "stop", nil); err != nil {
		return fmt.Errorf("stopping the guest for its migration: %w", err)
	}
	return nil
}

// StopToConverge stops a guest whose memory could not be sent in time.
func (s Source) StopToConverge(ctx context.Context, migration types.UID) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		m := &o.Migration
		if m.Begun != migration || m.Status != migrationstatus.Active || o.State.Outlook != runstate.Runs {
			return nil
		}
		return s.pauseForMigration(ctx, migration)
	})
}

// Continue makes a source that waits before the switchover hand its guest over. The disks must have been copied.
func (s Source) Continue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	defer s.guest.Invalidate()
	if s.guest.MayHaveCopies() {
		if err := diskcopy.Of(s.guest).RemoveNodes(ctx); err != nil {
			return err
		}
	}
	if err := s.guest.Execute(ctx, "migrate-continue", map[string]any{"state": migrationstatus.PreSwitchover}); err != nil {
		return fmt.Errorf("having QEMU hand the guest over: %w", err)
	}
	return nil
}

// Cancel cancels a migration, unless it is a post-copy: QEMU 10 refuses that, and QEMU 7.2 would cancel it even when the
// guest may run at the target.
func (s Source) Cancel(ctx context.Context) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Left || o.Migration.Status.PostCopy() {
			return nil
		}
		if err := s.guest.Execute(ctx, "migrate_cancel", nil); err != nil {
			return fmt.Errorf("canceling the migration: %w", err)
		}
		return nil
	})
}

var errNotSent = errors.New("this QEMU has not sent its guest with the migration")

// Reclaim resumes a guest that was sent. Call it only if the target never ran the guest.
func (s Source) Reclaim(ctx context.Context, migration types.UID) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Begun != migration || !o.Migration.HasSentGuest() {
			return errNotSent
		}
		if o.Migration.Left {
			if err := s.guest.Markers().Remove(ctx, machine.LeftMarker(migration)); err != nil {
				return fmt.Errorf("having the guest go on: %w", err)
			}
		}
		if err := s.guest.Execute(ctx, "cont", nil); err != nil {
			return fmt.Errorf("having the guest go on: %w", err)
		}
		announce(ctx, s.guest)
		return nil
	})
}

package handover

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// In a post-copy the guest moves before its memory. Each marker is set before the step that it records (decision 362).

// SwitchToPostCopy moves a source's guest before the rest of its memory. It stops the guest first: QEMU 10 would resume it
// if the migration fails at its very end, when the guest may run at the target. The marker gets the guest resumed if the
// migration fails before it has moved. told is false if the migration is at another point.
func (s Source) SwitchToPostCopy(ctx context.Context, migration types.UID) (told bool, err error) {
	err = s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		m := &o.Migration
		if m.Begun != migration || m.Status != migrationstatus.Active ||
			o.State.Outlook != runstate.Runs && o.State.Name != runstate.PausedToMigrate {
			return nil
		}
		if err := s.guest.Markers().Add(ctx, machine.PausedMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that is to move before its memory: %w", err)
		}
		for _, command := range []string{"stop", "migrate-start-postcopy"} {
			if err := s.guest.Execute(ctx, command, nil); err != nil {
				return fmt.Errorf("having the guest move before its memory: %w", err)
			}
		}
		told = true
		return nil
	})
	return told, err
}

// restBandwidth is no limit, in bytes per second.
const restBandwidth = 1 << 40

// SendRest makes a source send the rest of a discarded post-copy at full speed, and reports whether all of it is on its
// way. It does nothing to a guest that may run at the target.
func (s Source) SendRest(ctx context.Context, migration types.UID) (sent bool, err error) {
	err = s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		m := &o.Migration
		if m.Begun != migration || m.Left || !m.Status.Revocable() {
			return nil
		}
		if err := s.guest.Execute(ctx, "migrate-set-parameters", map[string]any{"max-postcopy-bandwidth": restBandwidth}); err != nil {
			return fmt.Errorf("having QEMU send the rest of the guest's memory: %w", err)
		}
		sent = m.Progress.Remaining == 0
		return nil
	})
	return sent, err
}

var errNotMoved = errors.New("this QEMU does not send its guest's memory after the guest")

// MarkLeft marks a source whose guest has moved: it must never continue here.
func (s Source) MarkLeft(ctx context.Context, migration types.UID) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Begun != migration || !o.Migration.Status.PostCopy() {
			return errNotMoved
		}
		if err := s.guest.Markers().Add(ctx, machine.LeftMarker(migration)); err != nil {
			return fmt.Errorf("marking a guest that has left: %w", err)
		}
		return nil
	})
}

// Recover makes a source send the rest of a post-copy to a socket of QEMU's. Do not repeat it before QEMU has left the
// status and come back to it: a second connection during an attempt ends QEMU 7.2.
func (s Source) Recover(ctx context.Context, migration types.UID, socket string) error {
	return s.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Begun != migration || o.Migration.Status != migrationstatus.PostCopyPaused {
			return nil
		}
		if err := s.guest.Execute(ctx, "migrate", map[string]any{"uri": "unix:" + socket, "resume": true}); err != nil {
			return fmt.Errorf("having QEMU send the rest of the guest's memory: %w", err)
		}
		return nil
	})
}

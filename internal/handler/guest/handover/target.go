package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// Target is a QEMU that takes a guest. Only its owner's goroutine commands it.
type Target struct{ guest *guest.Guest }

// TargetOf returns the commands of a target.
func TargetOf(g *guest.Guest) Target { return Target{g} }

var errNotArrived = errors.New("the guest has not arrived in this QEMU")

// Take makes a target run the guest that has arrived. It marks QEMU, calls prepare, whose failure leaves the guest
// stopped, and starts the CPUs. It may be repeated. The caller connects the taps before and calls Announce afterwards.
// onRunning is called once, as soon as the guest runs and before Take returns nil, and must not block.
func (t Target) Take(ctx context.Context, migration types.UID, prepare func() error, onRunning func()) error {
	return t.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Incoming != migration || !o.Migration.HasArrived() || o.Migration.Doomed {
			return errNotArrived
		}
		if o.Migration.Ran && o.State.Outlook == runstate.Runs {
			onRunning()
			return nil
		}
		if err := diskcopy.Of(t.guest).StopExports(ctx); err != nil {
			return err
		}
		// The guest is stopped, so o still holds.
		if !o.Migration.Ran {
			if err := t.guest.Execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": machine.RanMarker(migration)}); err != nil {
				return err
			}
		}
		if err := prepare(); err != nil {
			return err
		}
		// QEMU reports RESUME before its CPUs run; an emulated guest delays the answer to the command by 10 to 20 ms.
		once := sync.OnceFunc(onRunning)
		t.guest.CallOnRunning(once)
		defer t.guest.CallOnRunning(nil)
		if err := t.guest.Execute(ctx, "cont", nil); err != nil {
			return fmt.Errorf("starting the guest that has arrived: %w", err)
		}
		once()
		return nil
	})
}

// MarkDoomed marks a target whose guest will not come, before the target is ended.
func (t Target) MarkDoomed(ctx context.Context, migration types.UID) error {
	return t.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if !o.Migration.Arriving() {
			return nil
		}
		if err := t.guest.Markers().Add(ctx, machine.DoomedMarker(migration)); err != nil {
			return fmt.Errorf("marking a QEMU whose guest does not come: %w", err)
		}
		return nil
	})
}

// RecoverIncoming makes a target receive the rest of a post-copy from a socket of QEMU's.
func (t Target) RecoverIncoming(ctx context.Context, migration types.UID, socket string) error {
	return t.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.Incoming != migration || o.Migration.Status != migrationstatus.PostCopyPaused {
			return nil
		}
		err := t.guest.Execute(ctx, "migrate-recover", map[string]any{"uri": "unix:" + socket})
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

// The intervals are in milliseconds.
var announcement = map[string]any{"initial": 50, "max": 550, "rounds": 5, "step": 100}

// Announce makes QEMU send a frame from each interface, by which switches learn where the guest is: QEMU has sent its own
// before the taps were connected. A failure is only logged, since switches also learn from the guest's next frame.
func (t Target) Announce(ctx context.Context) { announce(ctx, t.guest) }

func announce(ctx context.Context, g *guest.Guest) {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := g.Execute(ctx, "announce-self", announcement); err != nil {
		g.Log().Info("QEMU has not announced the guest's addresses", "reason", err.Error())
	}
}

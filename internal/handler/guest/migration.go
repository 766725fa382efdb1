package guest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/memoryhotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Migration is a QEMU's state as a migration's source or target.
type Migration struct {
	machine.Handover
	// RunState is QEMU's own; guestRunState derives the guest's.
	RunState string
	// Status belongs to Begun or, without one, to Incoming.
	Status   migrationstatus.Status
	Failure  string
	Progress Progress
	// PostCopyBytes is how much memory a source has sent after its guest.
	PostCopyBytes float64
}

// Progress is the progress of a source's migration.
type Progress struct {
	// The sizes are bytes of memory. DirtyRate (changed by the guest) and Rate (sent) are bytes per second.
	Total, Transferred, Remaining float64
	DirtyRate, Rate               float64
	// Downtime is how long the guest has been stopped, Expected how long it would be from now.
	Elapsed, Downtime, Expected time.Duration
	// Rounds counts the passes through the memory. Throttle is the percentage of time taken from the guest.
	Rounds, Throttle float64
}

// UnderWay reports whether QEMU will leave the status by itself or on a command.
func (m *Migration) UnderWay() bool { return m.Status.UnderWay() }

func (m *Migration) hasArrived() bool {
	return m.Incoming != "" && (m.Ran || m.RunState != runstate.InMigrate && (m.Status == migrationstatus.Completed || m.Status.PostCopy()))
}

func (m *Migration) hasSentGuest() bool {
	return m.Begun != "" && m.RunState == runstate.PostMigrate && m.Status == migrationstatus.Completed
}

type migrationInfo struct {
	Status   string  `json:"status"`
	Error    string  `json:"error-desc"`
	Total    float64 `json:"total-time"`
	Downtime float64 `json:"downtime"`
	Expected float64 `json:"expected-downtime"`
	Throttle float64 `json:"cpu-throttle-percentage"`
	RAM      struct {
		Total       float64 `json:"total"`
		Transferred float64 `json:"transferred"`
		Remaining   float64 `json:"remaining"`
		PageSize    float64 `json:"page-size"`
		DirtyRate   float64 `json:"dirty-pages-rate"`
		Mbps        float64 `json:"mbps"`
		Rounds      float64 `json:"dirty-sync-count"`
		PostCopy    float64 `json:"postcopy-bytes"`
	} `json:"ram"`
}

const (
	// maxFigure bounds QEMU's figures: a guest may have taken QEMU over.
	maxFigure = 1 << 60
	// These bound QEMU's texts in bytes.
	maxFailure = 512
	maxStatus  = 64
)

func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}

func clamp(f float64) float64 { return math.Max(0, math.Min(maxFigure, f)) }

func milliseconds(f float64) time.Duration {
	return time.Duration(math.Min(clamp(f), float64(math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
}

// runState is QEMU's own.
func migrationOf(info migrationInfo, runState string, objects map[string]bool) Migration {
	m := Migration{
		Handover: machine.ReadHandover(objects), RunState: runState,
		Status: migrationstatus.Status(info.Status[:min(len(info.Status), maxStatus)]),
		Progress: Progress{
			Total: clamp(info.RAM.Total), Transferred: clamp(info.RAM.Transferred), Remaining: clamp(info.RAM.Remaining),
			DirtyRate: clamp(info.RAM.DirtyRate * info.RAM.PageSize), Rate: clamp(info.RAM.Mbps * 1e6 / 8),
			Elapsed: milliseconds(info.Total), Downtime: milliseconds(info.Downtime), Expected: milliseconds(info.Expected),
			Rounds: clamp(info.RAM.Rounds), Throttle: math.Min(100, clamp(info.Throttle)),
		},
		PostCopyBytes: clamp(info.RAM.PostCopy),
	}
	if m.Status == migrationstatus.Failed {
		m.Failure = truncate(info.Error)
	}
	if m.Begun != "" && m.Status == migrationstatus.Completed && runState != runstate.PostMigrate && !isTransient(runState) {
		// This is the end of an earlier migration: the marked one has not begun. A QEMU that completes one leaves
		// finish-migrate only after it reports the status.
		m.Status = migrationstatus.None
	}
	return m
}

func (m *Migration) endedAtSource() bool {
	return m.Status == migrationstatus.Failed || m.Status == migrationstatus.Canceled
}

// stoppedForMigration reports whether a source's guest is stopped by virt-handler, or by the failure of such a guest's
// migration.
func (m *Migration) stoppedForMigration() bool {
	return runstate.Of(m.RunState).Reason == runstate.ReasonPausedByUser || m.RunState == runstate.PostMigrate && m.endedAtSource()
}

// markerLeftOver reports whether PausedMarker has to be removed: the guest runs and is not about to be stopped.
func (m *Migration) markerLeftOver() bool {
	return m.Paused && !m.UnderWay() && runstate.Of(m.RunState).Outlook == runstate.Runs
}

// guestRunState returns the guest's run state instead of QEMU's. A guest that has not arrived is inmigrate, whatever
// QEMU reports. One that a disk error stopped just before a handover that then failed has an I/O error: QEMU reports
// postmigrate.
func guestRunState(m Migration) string {
	switch {
	case m.Arriving() && runstate.Of(m.RunState).Outlook != runstate.Over:
		return runstate.InMigrate
	case m.Left:
		return m.RunState
	case m.Paused && m.stoppedForMigration():
		return runstate.PausedToMigrate
	case m.RunState == runstate.PostMigrate && m.Begun != "" && m.endedAtSource():
		return runstate.IOError
	}
	return m.RunState
}

// Begin has the parameters of a migration.
type Begin struct {
	Migration types.UID
	// Socket is a path of QEMU's.
	Socket string
	// Bandwidth is in bytes per second; 0 for no limit.
	Bandwidth    int64
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

// It is in milliseconds.
const downtimeLimit = "downtime-limit"

// SetDowntime limits the downtime: a source stops its guest when it expects to send the rest within the limit.
func (g *Guest) SetDowntime(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := g.execute(ctx, "migrate-set-parameters", map[string]any{downtimeLimit: limit.Milliseconds()}); err != nil {
		return fmt.Errorf("setting how long the guest may stand still: %w", err)
	}
	return nil
}

type capability struct {
	Name  string `json:"capability"`
	State bool   `json:"state"`
}

// Begin makes QEMU send the guest, or returns a *power.Refusal.
func (g *Guest) Begin(ctx context.Context, b Begin) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if err := power.DecideSend(o.Guest).Refusal(); err != nil {
			return err
		}
		g.mu.Lock()
		g.known.migrates = true
		g.mu.Unlock()
		return g.sendMigrate(ctx, b)
	})
}

// sendMigrate marks QEMU first: if virt-handler dies in between, the migration has the status none, which counts as
// failed.
func (g *Guest) sendMigrate(ctx context.Context, b Begin) error {
	err := g.setTransport(ctx, b.Transport, capability{"events", true}, capability{"return-path", true},
		capability{"pause-before-switchover", true}, capability{"auto-converge", b.AutoConverge})
	if err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	if err := g.execute(ctx, "migrate-set-parameters", b.parameters()); err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	objects, err := g.queryObjects(ctx)
	if err != nil {
		return err
	}
	for _, marker := range machine.Outdated(objects, b.Migration) {
		if err := g.removeMarker(ctx, marker); err != nil {
			return err
		}
	}
	if err := g.addMarker(ctx, machine.BegunMarker(b.Migration)); err != nil {
		return err
	}
	loses, err := g.losesWrites(ctx)
	if err == nil && loses {
		// Writes after the first byte is sent would stay behind.
		err = g.pauseForMigration(ctx, b.Migration)
	}
	if err != nil {
		return err
	}
	if err := g.execute(ctx, "migrate", map[string]any{"uri": "unix:" + b.Socket}); err != nil {
		return fmt.Errorf("beginning the migration: %w", err)
	}
	return nil
}

func (g *Guest) losesWrites(ctx context.Context) (bool, error) {
	if g.kvm {
		return false, nil
	}
	is, err := memoryhotplug.Ask(ctx, g.monitor, machine.MemoryDevice, machine.MostRoom)
	if is == nil || err != nil {
		return false, err
	}
	return vmihandler.LosesWrites(g.kvm, vmihandler.Memory{Requested: is.Requested, Size: is.Size}), nil
}

// The mark comes first: if virt-handler dies in between, the guest runs.
func (g *Guest) pauseForMigration(ctx context.Context, migration types.UID) error {
	if err := g.addMarker(ctx, machine.PausedMarker(migration)); err != nil {
		return fmt.Errorf("marking a guest that is to be stopped for its migration: %w", err)
	}
	if err := g.execute(ctx, "stop", nil); err != nil {
		return fmt.Errorf("stopping the guest for its migration: %w", err)
	}
	return nil
}

// Converge stops a guest that changes its memory faster than it is sent.
func (g *Guest) Converge(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		m := &o.migration
		if m.Begun != migration || m.Status != migrationstatus.Active || o.State.Outlook != runstate.Runs {
			return nil
		}
		return g.pauseForMigration(ctx, migration)
	})
}

// Continue makes a source that waits before the switchover hand its guest over. The disks must have been copied.
func (g *Guest) Continue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	defer g.invalidate()
	g.mu.Lock()
	copied := g.known.copies || len(g.known.jobs) > 0
	g.mu.Unlock()
	if copied {
		if err := g.removeAllCopyNodes(ctx); err != nil {
			return err
		}
	}
	if err := g.execute(ctx, "migrate-continue", map[string]any{"state": migrationstatus.PreSwitchover}); err != nil {
		return fmt.Errorf("having QEMU hand the guest over: %w", err)
	}
	return nil
}

// Cancel makes a source give a migration up, unless it is too far. QEMU would cancel even a post-copy whose guest may
// run at the target, and never ends one that it cancels after its stream has broken.
func (g *Guest) Cancel(ctx context.Context) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if m := &o.migration; m.Left || m.Status.PostCopy() && !m.Status.Revocable() {
			return nil
		}
		if err := g.execute(ctx, "migrate_cancel", nil); err != nil {
			return fmt.Errorf("canceling the migration: %w", err)
		}
		return nil
	})
}

var errNotArrived = errors.New("the guest has not arrived in this QEMU")

// Take makes a target run the guest that has arrived. It marks QEMU, and may be repeated from then on. Between the mark
// and the run it calls between, whose failure leaves the guest stopped. The caller connects the taps before and calls
// Announce afterwards. runs is called once as soon as the guest runs, from a goroutine that must not block, and before
// Take returns nil.
func (g *Guest) Take(ctx context.Context, migration types.UID, between func() error, runs func()) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Incoming != migration || !o.migration.hasArrived() || o.migration.Doomed {
			return errNotArrived
		}
		if o.migration.Ran && o.State.Outlook == runstate.Runs {
			runs()
			return nil
		}
		if err := g.stopNBDServer(ctx); err != nil {
			return err
		}
		// The guest is stopped, so o still holds.
		if !o.migration.Ran {
			if err := g.execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": machine.RanMarker(migration)}); err != nil {
				return err
			}
		}
		if err := between(); err != nil {
			return err
		}
		// QEMU reports RESUME before its CPUs run; an emulated guest delays the answer to the command by 10 to 20 ms.
		once := sync.OnceFunc(runs)
		g.setOnRunning(once)
		defer g.setOnRunning(nil)
		if err := g.execute(ctx, "cont", nil); err != nil {
			return fmt.Errorf("starting the guest that has arrived: %w", err)
		}
		once()
		return nil
	})
}

func (g *Guest) setOnRunning(do func()) {
	g.mu.Lock()
	g.onRunning = do
	g.mu.Unlock()
}

// The intervals are in milliseconds.
var announcement = map[string]any{"initial": 50, "max": 550, "rounds": 5, "step": 100}

// Announce makes QEMU send a frame from each interface, by which switches learn the new way to the guest: QEMU's own
// frames come before the taps are connected. Switches also learn from the guest's next frame, so a failure is only
// logged.
func (g *Guest) Announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := g.execute(ctx, "announce-self", announcement); err != nil {
		g.env.Log.Info("QEMU has not announced the guest's addresses", "reason", err.Error())
	}
}

// Doom marks a target whose guest will not come, before the target is ended.
func (g *Guest) Doom(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if !o.migration.Arriving() {
			return nil
		}
		if err := g.addMarker(ctx, machine.DoomedMarker(migration)); err != nil {
			return fmt.Errorf("marking a QEMU whose guest does not come: %w", err)
		}
		return nil
	})
}

var errNotSent = errors.New("this QEMU has not sent its guest with the migration")

// Reclaim resumes here a guest that was sent, when the target is known never to have run it.
func (g *Guest) Reclaim(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || !o.migration.hasSentGuest() {
			return errNotSent
		}
		if o.migration.Left {
			if err := g.removeMarker(ctx, machine.LeftMarker(migration)); err != nil {
				return fmt.Errorf("having the guest go on: %w", err)
			}
		}
		if err := g.execute(ctx, "cont", nil); err != nil {
			return fmt.Errorf("having the guest go on: %w", err)
		}
		g.Announce(ctx)
		return nil
	})
}

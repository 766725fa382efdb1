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

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/switchover"
)

// Migration is what is known of a QEMU as the source or the target of migrations.
type Migration struct {
	// Handover says which migrations it is in, and whether the guest may have run here.
	machine.Handover
	// RunState is QEMU's own; that of the guest is settled by what else is known.
	RunState string
	// Status is that of Begun or, without one, of Incoming.
	Status migrationstatus.Status
	// Failure is what QEMU says of a migration that has failed.
	Failure  string
	Progress Progress
	// PostCopyBytes is what a source has sent of the memory that follows its guest.
	PostCopyBytes float64
}

// Progress is how far a source's migration is.
type Progress struct {
	// Total, Transferred and Remaining are bytes of the guest's memory. DirtyRate and Rate are
	// bytes in a second: what the guest changes, and what is sent.
	Total, Transferred, Remaining float64
	DirtyRate, Rate               float64
	// Elapsed is how long the migration has taken, Downtime how long the guest has been stopped
	// for it; Expected is how long it would be if it was stopped now.
	Elapsed, Downtime, Expected time.Duration
	// Rounds is how often the memory has been gone through, Throttle how many per cent of its
	// time the guest is kept from running, so that it changes less.
	Rounds, Throttle float64
}

// UnderWay reports whether QEMU is to leave the status by itself, or waits in it for a command.
func (m *Migration) UnderWay() bool { return m.Status.UnderWay() }

// arrived reports whether a target has what its guest needs to run, which it may not have done yet.
func (m *Migration) arrived() bool {
	return m.Incoming != "" && (m.Ran || m.RunState != runstate.InMigrate && (m.Status == migrationstatus.Completed || m.Status.PostCopy()))
}

// gone reports whether a source has sent all of its guest.
func (m *Migration) gone() bool {
	return m.Begun != "" && m.RunState == runstate.PostMigrate && m.Status == migrationstatus.Completed
}

// migrationInfo is QEMU's answer to query-migrate.
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
	// maxFigure bounds QEMU's figures: a guest that has taken it over may say anything.
	maxFigure = 1 << 60
	// maxFailure bounds QEMU's sentence about a failure in bytes, maxStatus the name of a
	// status.
	maxFailure = 512
	maxStatus  = 64
)

// short is QEMU's text as it may be passed on.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}

func figure(f float64) float64 { return math.Max(0, math.Min(maxFigure, f)) }

func milliseconds(f float64) time.Duration {
	return time.Duration(math.Min(figure(f), float64(math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
}

func (i *migrationInfo) progress() Progress {
	return Progress{
		Total: figure(i.RAM.Total), Transferred: figure(i.RAM.Transferred), Remaining: figure(i.RAM.Remaining),
		DirtyRate: figure(i.RAM.DirtyRate * i.RAM.PageSize), Rate: figure(i.RAM.Mbps * 1e6 / 8),
		Elapsed: milliseconds(i.Total), Downtime: milliseconds(i.Downtime), Expected: milliseconds(i.Expected),
		Rounds: figure(i.RAM.Rounds), Throttle: math.Min(100, figure(i.Throttle)),
	}
}

// migrationOf is what QEMU's answers come to. runState is the one that QEMU has named before.
func migrationOf(info migrationInfo, runState string, objects map[string]bool) Migration {
	m := Migration{
		Handover: machine.ReadHandover(objects), RunState: runState,
		Status: migrationstatus.Status(info.Status[:min(len(info.Status), maxStatus)]), Progress: info.progress(),
		PostCopyBytes: figure(info.RAM.PostCopy),
	}
	if m.Status == migrationstatus.Failed {
		m.Failure = short(info.Error)
	}
	if m.Begun != "" && m.Status == migrationstatus.Completed && runState != runstate.PostMigrate && !passing(runState) {
		// QEMU has not begun the migration that it has the marker of, and tells of an
		// earlier one. While it completes one, it leaves the run state finish-migrate after it says so.
		m.Status = migrationstatus.None
	}
	return m
}

// over reports whether a source's migration has ended, and the guest is here.
func (m *Migration) over() bool {
	return m.Status == migrationstatus.Failed || m.Status == migrationstatus.Canceled
}

// stoppedForIt reports whether a source's guest is stopped as virt-handler has stopped it, or as QEMU leaves
// it when the migration of such a guest fails.
func (m *Migration) stoppedForIt() bool {
	return runstate.Of(m.RunState).Reason == runstate.ReasonPausedByUser || m.RunState == runstate.PostMigrate && m.over()
}

// outlived reports whether the marker of a guest that was stopped for its migration is to be
// removed: it runs, and is not about to be stopped.
func (m *Migration) outlived() bool {
	return m.Paused && !m.UnderWay() && runstate.Of(m.RunState).Outlook == runstate.Runs
}

// settled is the run state of the guest rather than of its QEMU. A guest that has not arrived,
// whatever its QEMU is about, is to arrive. One that was stopped by an error of its disks when it
// was to be handed over, and was not, is where it was: QEMU says postmigrate of it.
func settled(m Migration) string {
	switch {
	case m.Arriving() && runstate.Of(m.RunState).Outlook != runstate.Over:
		return runstate.InMigrate
	case m.Left:
		return m.RunState
	case m.Paused && m.stoppedForIt():
		return runstate.PausedToMigrate
	case m.RunState == runstate.PostMigrate && m.Begun != "" && m.over():
		return runstate.IOError
	}
	return m.RunState
}

// Begin is how a migration is begun.
type Begin struct {
	Migration types.UID
	// Socket is where QEMU connects to, as it sees it.
	Socket string
	// Bandwidth is the most that is sent in a second, in bytes; 0 for no limit.
	Bandwidth int64
	// AutoConverge slows a guest down that changes its memory faster than it is sent.
	AutoConverge bool
	// Downtime is how long the guest may be stopped for the last of its memory (SetDowntime).
	Downtime time.Duration
	// Transport is how the target's QEMU takes the guest.
	Transport switchover.Transport
}

// noLimit is as much in a second as no network sends; QEMU's own default is a limit.
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

// downtimeLimit is QEMU's parameter, in milliseconds.
const downtimeLimit = "downtime-limit"

// SetDowntime has a source stop its guest when it expects to send what is left in so long.
func (g *Guest) SetDowntime(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
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

func (g *Guest) setCapabilities(ctx context.Context, list ...capability) error {
	return g.execute(ctx, "migrate-set-capabilities", map[string]any{"capabilities": list})
}

// Begin has QEMU send the guest. A guest that can't be sent in the state that it is in is a
// *Refusal.
func (g *Guest) Begin(ctx context.Context, b Begin) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		d := decideBegin(o)
		if d.action == refuse {
			return &Refusal{d.message}
		}
		g.mu.Lock()
		g.known.migrates = true
		g.mu.Unlock()
		return g.begin(ctx, b)
	})
}

// begin marks QEMU before it sends anything: one that dies in between leaves a migration that
// has not begun, with the status of none, which has failed. The caller holds g.power.
func (g *Guest) begin(ctx context.Context, b Begin) error {
	g.postCopy, g.moves = false, false
	err := g.setTransport(ctx, b.Transport, capability{"events", true}, capability{"return-path", true},
		capability{"pause-before-switchover", true}, capability{"auto-converge", b.AutoConverge})
	if err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	if err := g.execute(ctx, "migrate-set-parameters", b.parameters()); err != nil {
		return fmt.Errorf("preparing the migration: %w", err)
	}
	objects, err := g.objects(ctx)
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
		// Before anything is sent: what the guest writes then would stay behind.
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

// pauseForMigration marks and stops a guest, in this order: one that dies in between leaves a guest that
// runs. The caller holds g.power.
func (g *Guest) pauseForMigration(ctx context.Context, migration types.UID) error {
	if err := g.addMarker(ctx, machine.PausedMarker(migration)); err != nil {
		return fmt.Errorf("marking a guest that is to be stopped for its migration: %w", err)
	}
	if err := g.execute(ctx, "stop", nil); err != nil {
		return fmt.Errorf("stopping the guest for its migration: %w", err)
	}
	return nil
}

// Converge stops a guest that changes its memory faster than it is sent, until it has been sent. One that
// is being handed over already, or stands still, is left alone.
func (g *Guest) Converge(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		m := &o.migration
		if m.Begun != migration || m.Status != migrationstatus.Active || o.state.Outlook != runstate.Runs {
			return nil
		}
		return g.pauseForMigration(ctx, migration)
	})
}

// Continue has a source that waits before the switchover hand its guest over. Its disks have been
// copied by then.
func (g *Guest) Continue(ctx context.Context) error {
	return g.unconditional(ctx, func(ctx context.Context) error {
		if g.hasCopied() {
			if err := g.dropCopies(ctx); err != nil {
				return err
			}
		}
		g.moves = g.postCopy
		if err := g.execute(ctx, "migrate-continue", map[string]any{"state": migrationstatus.PreSwitchover}); err != nil {
			g.moves = false
			return fmt.Errorf("having QEMU hand the guest over: %w", err)
		}
		return nil
	})
}

// Cancel has a source give a migration up. One that is past that goes on. QEMU would cancel a post-copy whose guest
// may run at the target: it is not told to.
func (g *Guest) Cancel(ctx context.Context) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Left || o.migration.Status.PostCopy() || g.moves {
			return nil
		}
		if err := g.execute(ctx, "migrate_cancel", nil); err != nil {
			return fmt.Errorf("canceling the migration: %w", err)
		}
		return nil
	})
}

// errNotArrived is of a target that has no guest to run.
var errNotArrived = errors.New("the guest has not arrived in this QEMU")

// Take has a target run the guest that has arrived. It marks QEMU before, and may be called
// again after it has done so. Between the mark and the run it calls between, whose failure leaves the guest stopped. The
// guest's taps are connected before, and it is announced (Announce) after. runs is called once as soon as the guest runs,
// from a goroutine that must not wait, and has been when Take returns without an error.
func (g *Guest) Take(ctx context.Context, migration types.UID, between func() error, runs func()) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Incoming != migration || !o.migration.arrived() || o.migration.Doomed {
			return errNotArrived
		}
		if o.migration.Ran && o.state.Outlook == runstate.Runs {
			runs()
			return nil
		}
		if err := g.endExports(ctx); err != nil {
			return err
		}
		if err := g.markRan(ctx, o.migration.Handover, migration); err != nil {
			return err
		}
		if err := between(); err != nil {
			return err
		}
		return g.runArrived(ctx, runs)
	})
}

// markRan marks a target before its guest runs, unless that was done. The guest stands still: QEMU is
// not asked again for what was just seen. The caller holds g.power.
func (g *Guest) markRan(ctx context.Context, seen machine.Handover, migration types.UID) error {
	if seen.Ran {
		return nil
	}
	return g.execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": machine.RanMarker(migration)})
}

// runArrived has QEMU run a guest that has arrived. QEMU reports the event RESUME before its CPUs run, and answers when it is
// done: a guest that is emulated keeps it from that for 10 to 20 ms. The caller holds g.power.
func (g *Guest) runArrived(ctx context.Context, runs func()) error {
	runs = sync.OnceFunc(runs)
	g.whenRunning(runs)
	defer g.whenRunning(nil)
	if err := g.execute(ctx, "cont", nil); err != nil {
		return fmt.Errorf("starting the guest that has arrived: %w", err)
	}
	runs()
	return nil
}

func (g *Guest) whenRunning(do func()) {
	g.mu.Lock()
	g.running = do
	g.mu.Unlock()
}

// heardRunning is called when QEMU says that the guest runs.
func (g *Guest) heardRunning() {
	g.mu.Lock()
	do := g.running
	g.mu.Unlock()
	if do != nil {
		do()
	}
}

// announcement is how QEMU tells the guest's networks where its addresses are now: how often, and
// with which pauses, in milliseconds.
var announcement = map[string]any{"initial": 50, "max": 550, "rounds": 5, "step": 100}

// Announce has QEMU send, from each of the guest's interfaces, a frame by which switches learn the new
// way to it. What QEMU sends of itself when a guest has arrived, it sends before its taps are
// connected. A guest that is not announced is found by what it sends next.
func (g *Guest) Announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := g.execute(ctx, "announce-self", announcement); err != nil {
		g.env.Log.Info("QEMU has not announced the guest's addresses", "reason", err.Error())
	}
}

// Doom marks a target whose guest is not to come, before it is ended.
func (g *Guest) Doom(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if !o.migration.Arriving() {
			return nil
		}
		if err := g.addMarker(ctx, machine.DoomedMarker(migration)); err != nil {
			return fmt.Errorf("marking a QEMU whose guest does not come: %w", err)
		}
		return nil
	})
}

// errNotSent is of a source that has not sent its guest.
var errNotSent = errors.New("this QEMU has not sent its guest with the migration")

// Reclaim has a guest go on here that was sent, and that the target is known never to have run.
func (g *Guest) Reclaim(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.Begun != migration || !o.migration.gone() {
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

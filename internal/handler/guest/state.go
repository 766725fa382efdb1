package guest

import (
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// knownState is a value: each function returns the next one.
type knownState struct {
	runState string
	// stall records the I/O error that has stopped the guest; paused means that its user has paused it, too.
	stall       vmihandler.Stall
	failedDisks []vmihandler.FailedDisk
	paused      bool
	halted      bool // the CPUs wait for volumes
	started     bool // QEMU is never halted again
	// migrates and copies mean that QEMU was told to migrate or to copy disks, or has reported it.
	migrates  bool
	migration Migration
	copies    bool
	jobs      []Job
}

type answers struct {
	runState            string
	waits, paused, held bool // false if they were not queried
	migration           Migration
	jobs                []Job
	failed              []vmihandler.FailedDisk // queried in the run state io-error only
}

func (m knownState) markersMatter(runState string) bool {
	return !m.started || runState == runstate.IOError || runstate.Of(runState).Reason == runstate.ReasonPausedByUser || m.migrates || m.migration != (Migration{}) || isTransient(runState) || runState == runstate.PostMigrate || m.copies || len(m.jobs) > 0
}

// isHalted reports whether a guest with WaitMarker has never run. In another run state than prelaunch it has run: the
// marker stays if virt-handler dies after starting the CPUs. At a migration's target the marker means nothing.
func isHalted(runState string, waits bool) bool { return waits && runState == runstate.Prelaunch }

func waitMarkerLeftOver(runState string, waits bool) bool {
	return waits && runState != runstate.Prelaunch && runState != runstate.InMigrate
}

func (m knownState) with(a answers, now time.Time) knownState {
	next := knownState{
		runState: a.runState, stall: m.stall.Next(a.runState, now), failedDisks: m.failedDisks,
		halted: isHalted(a.runState, a.waits), started: m.started,
		migrates: m.migrates, migration: a.migration, copies: m.copies, jobs: a.jobs,
	}
	next.started = next.started || !next.halted && a.runState != runstate.InMigrate
	next.paused = a.paused && (next.halted || a.runState == runstate.IOError)
	if a.runState == runstate.IOError || !next.stall.Active() {
		// A resumed guest may stop again at once, so its failed disks stay known until it has run for a while.
		next.failedDisks = a.failed
	}
	return next
}

func (m knownState) at(now time.Time) knownState {
	m.stall = m.stall.Next(m.runState, now)
	if !m.stall.Active() {
		m.failedDisks = nil
	}
	return m
}

// transientPause is the interval of queries in run states that QEMU may leave without an event, and in a migration.
const transientPause = time.Second

// handoverPause is the interval of queries at a source whose guest is stopped. Two changes have no event: the first page
// after the guest is sent, and QEMU has finally stopped, a moment after it reports that all is sent.
const handoverPause = 5 * time.Millisecond

func isTransient(state string) bool {
	outlook := runstate.Of(state).Outlook
	return outlook == runstate.Passes || outlook == runstate.Unknown
}

// handsOver reports whether a source will soon allow its target to run the guest.
func (m knownState) handsOver() bool {
	switch {
	case m.migration.Begun == "":
		return false
	case m.migration.Status == migrationstatus.PostCopyActive:
		return m.migration.PostCopyBytes == 0
	}
	return m.migration.Status == migrationstatus.Completed && isTransient(m.runState)
}

func (m knownState) facts(now time.Time) Facts {
	due, after := m.stall.Resume(m.paused, now)
	due = due || m.runState == runstate.PausedToMigrate && m.migration.Paused && !m.migration.UnderWay()
	if isTransient(m.runState) || m.migration.UnderWay() || hasActiveJob(m.jobs) {
		after = backoff.Sooner(after, transientPause)
	}
	if m.handsOver() {
		after = backoff.Sooner(after, handoverPause)
	}
	return Facts{
		Migration: m.migration, Jobs: m.jobs, RunState: m.runState, Stalled: m.stall.Active(), FailedDisks: m.failedDisks,
		PausedByUser: m.paused, Halted: m.halted, Resume: due, Attempts: m.stall.Attempts(), After: after,
	}
}

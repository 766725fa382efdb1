package guest

import (
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// memory is what was found out about one QEMU. It is a value: each function gives the
// next one.
type memory struct {
	runState string
	// stall is what is remembered of an I/O error that has stopped the guest,
	// failedDisks where it was, and paused that its user has paused it too.
	stall       guestlifecycle.Stall
	failedDisks []guestlifecycle.FailedDisk
	paused      bool
	// halted means that the CPUs have never been started, because they wait for
	// volumes. started means that they have: nothing makes a QEMU halted again.
	halted, started bool
	// migrates means that QEMU was told to migrate, or has reported a migration; migration is
	// what it said of it last.
	migrates  bool
	migration Migration
	// copies means that QEMU was told to copy disks, or has reported it; jobs is what it said of
	// that last.
	copies bool
	jobs   []Job
}

// answers are what QEMU says of its guest at one time.
type answers struct {
	runState string
	// waits and paused mean that QEMU has the markers. They are false if they were not
	// asked for.
	waits, paused bool
	// held means that virt-launcher holds the guest still, or is about to.
	held      bool
	migration Migration
	jobs      []Job
	// failed are the disks with an error, asked for in the run state io-error alone.
	failed []guestlifecycle.FailedDisk
}

// asks reports whether QEMU's markers, and its migration, mean something in a run state.
func (m memory) asks(runState string) bool {
	return !m.started || runState == runstate.IOError || runstate.Of(runState).Reason == runstate.ReasonPausedByUser || m.migrates || m.migration != (Migration{}) || passing(runState) || runState == runstate.PostMigrate || m.copies || len(m.jobs) > 0
}

// halts reports whether a guest with WaitMarker has never run. In any other state but one, it
// has: the marker is left when virt-handler dies after it has started the CPUs. In the
// target of a migration it says nothing: the guest is what arrives.
func halts(runState string, waits bool) bool { return waits && runState == runstate.Prelaunch }

// outlived reports whether WaitMarker is to be removed, because the guest has run.
func outlived(runState string, waits bool) bool {
	return waits && runState != runstate.Prelaunch && runState != runstate.InMigrate
}

// with is what is known after QEMU has answered.
func (m memory) with(a answers, now time.Time) memory {
	next := memory{
		runState: a.runState, stall: m.stall.Next(a.runState, now), failedDisks: m.failedDisks,
		halted: halts(a.runState, a.waits), started: m.started,
		migrates: m.migrates, migration: a.migration, copies: m.copies, jobs: a.jobs,
	}
	next.started = next.started || !next.halted && a.runState != runstate.InMigrate
	next.paused = a.paused && (next.halted || a.runState == runstate.IOError)
	if a.runState == runstate.IOError || !next.stall.Active() {
		// A guest that has just been told to continue may stop again at once: until
		// it has run for a while, what is known of its disks stands.
		next.failedDisks = a.failed
	}
	return next
}

// at is what is known when time has passed.
func (m memory) at(now time.Time) memory {
	m.stall = m.stall.Next(m.runState, now)
	if !m.stall.Active() {
		m.failedDisks = nil
	}
	return m
}

// passingPause is how often QEMU is asked for a run state that it may leave
// without an event, and for a migration's progress.
const passingPause = time.Second

// handoverPause is how often a source is asked for what QEMU reports no event of while its guest stands still: that it
// has sent the first page after the guest; and that it has stopped for good, which it does a moment after it has said
// that all is sent.
const handoverPause = 5 * time.Millisecond

func passing(state string) bool {
	outlook := runstate.Of(state).Outlook
	return outlook == runstate.Passes || outlook == runstate.Unknown
}

// handsOver reports whether a source is about to be where its target may run the guest.
func (m memory) handsOver() bool {
	switch {
	case m.migration.Begun == "":
		return false
	case m.migration.Status == migrationstatus.PostCopyActive:
		return m.migration.PostCopyBytes == 0
	}
	return m.migration.Status == migrationstatus.Completed && passing(m.runState)
}

func (m memory) facts(now time.Time) Facts {
	due, after := m.stall.Resume(m.paused, now)
	due = due || m.runState == runstate.PausedToMigrate && m.migration.Paused && !m.migration.UnderWay()
	if passing(m.runState) || m.migration.UnderWay() || copying(m.jobs) {
		after = backoff.Sooner(after, passingPause)
	}
	if m.handsOver() {
		after = backoff.Sooner(after, handoverPause)
	}
	return Facts{
		Migration: m.migration, Jobs: m.jobs, RunState: m.runState, Stalled: m.stall.Active(), FailedDisks: m.failedDisks,
		PausedByUser: m.paused, Halted: m.halted, Resume: due, Attempts: m.stall.Attempts(), After: after,
	}
}

package guest

import "drydock.dev/drydock/internal/qemu/runstate"

// observation is what a power verb is decided on: QEMU is asked just before.
type observation struct {
	state runstate.State
	// halted means that the CPUs have never been started, because they wait for volumes.
	halted bool
	// paused means that QEMU has PauseMarker.
	paused bool
	// held means that virt-launcher holds the guest still, or is about to.
	held bool
	// migration is what QEMU has to do with migrations. state is settled by it.
	migration Migration
}

// action is what is to be done to the guest.
type action string

const (
	// refuse does nothing; the decision's message says why.
	refuse action = "refuse"
	// stop stops the CPUs, and looks at what has come of it (decideStopped).
	stop action = "stop"
	// proceed has the CPUs run, after it has removed PauseMarker.
	proceed action = "proceed"
	// wakeUp ends the guest's own suspension.
	wakeUp action = "wake up"
	// mark and unmark add and remove PauseMarker.
	mark   action = "mark"
	unmark action = "unmark"
	// reset is the reset button; resetAndRun has the guest run after it.
	reset       action = "reset"
	resetAndRun action = "reset and run"
	// none is for what is as it should be.
	none action = "none"
)

// decision is an action, or why there is none.
type decision struct {
	action  action
	message string
}

func refused(message string) decision { return decision{refuse, message} }

// decidePause stops a guest so that it stays stopped until it is unpaused.
func decidePause(o observation) decision {
	switch {
	case o.halted && o.paused:
		return refused("VMI is already paused")
	case o.halted:
		return decision{action: mark}
	case o.state.Name == runstate.Held:
		return refused(refusedHeld)
	case o.state.Outlook != runstate.Runs && o.state.Name != runstate.IOError:
		return refusePause(o.state)
	case o.migration.UnderWay():
		// Where it arrives, nobody could tell that it is to stay stopped (decision 297).
		return refused("VMI cannot be paused while it is migrated")
	}
	return decision{action: stop}
}

// refusedHeld is of a guest that virt-launcher has stopped, and has run again soon.
const refusedHeld = "VMI cannot be paused while its disks are being snapshotted; try again"

// decideStopped says what a stop has come to: an error of a disk, or of QEMU's, may have
// been faster.
func decideStopped(state runstate.State) decision {
	switch {
	case state.Name == runstate.IOError:
		return decision{action: mark}
	case state.Name == runstate.Held:
		// virt-launcher was faster, or will have the guest go on that was stopped here.
		return refused(refusedHeld)
	case state.Reason != runstate.ReasonPausedByUser:
		return refusePause(state)
	}
	return decision{action: none}
}

func refusePause(state runstate.State) decision {
	if state.Paused {
		return refused("VMI is already paused")
	}
	return refused("VMI cannot be paused: " + state.Message)
}

// decideUnpause has a guest continue that is stopped and can, whatever has stopped it.
func decideUnpause(o observation) decision {
	switch {
	case o.halted && !o.paused:
		return refused("VMI is not paused: it waits for volumes before it starts")
	case o.halted:
		// The guest starts when its volumes are there.
		return decision{action: unmark}
	case o.state.Outlook == runstate.Runs:
		return refused("VMI is not paused")
	case o.state.Outlook != runstate.Waits || o.state.Name == runstate.PausedToMigrate && o.migration.UnderWay():
		return refused("VMI cannot be unpaused: " + o.state.Message)
	case o.state.Name == runstate.Suspended:
		return decision{action: wakeUp}
	}
	return decision{action: proceed}
}

// decideReset presses the reset button. A guest that its user has paused stays paused; one
// that an I/O error has stopped, and nobody else, runs.
func decideReset(o observation) decision {
	switch {
	case o.state.Outlook != runstate.Runs && o.state.Outlook != runstate.Waits:
		return refused("VMI cannot be reset: " + o.state.Message)
	case o.state.Name == runstate.IOError && !o.paused:
		return decision{action: resetAndRun}
	}
	return decision{action: reset}
}

// decideResume has a guest continue that an I/O error has stopped, if it still is and its
// user has not paused it meanwhile; or one that was stopped for a migration that has failed.
func decideResume(o observation) decision {
	if o.state.Name == runstate.PausedToMigrate && !o.migration.UnderWay() {
		return decision{action: proceed}
	}
	if o.state.Name != runstate.IOError || o.paused {
		return decision{action: none}
	}
	return decision{action: proceed}
}

// decideBegin has QEMU send a guest elsewhere that runs. A guest that is stopped is not sent: where
// it arrives, nobody could tell what it waits for (decision 297).
func decideBegin(o observation) decision {
	switch {
	case o.halted:
		return refused("the VMI cannot be migrated: it waits for volumes before it starts")
	case o.migration.UnderWay():
		return refused("the VMI cannot be migrated: its QEMU is about to migrate it already")
	case o.held:
		return refused("the VMI cannot be migrated: its file systems are frozen, or its disks are being snapshotted")
	case o.state.Outlook != runstate.Runs:
		return refused("the VMI cannot be migrated: " + o.state.Message)
	}
	return decision{action: none}
}

// decideReboot says why a guest can't be asked to reboot; "" when it can. It is
// about what was last known: the guest itself is asked next.
func decideReboot(f Facts) (refusal string) {
	state := runstate.Of(f.RunState)
	switch {
	case f.Halted:
		return "VMI cannot be rebooted: it waits for volumes before it starts"
	case state.Paused:
		return "VMI is paused"
	case state.Outlook != runstate.Runs:
		return "VMI cannot be rebooted: " + state.Message
	}
	return ""
}

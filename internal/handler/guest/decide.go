package guest

import "drydock.dev/drydock/internal/qemu/runstate"

type observation struct {
	state runstate.State
	// halted means that the CPUs wait for volumes and have never been started.
	halted bool
	paused bool
	// held means that virt-launcher holds the guest still or is about to.
	held bool
	// migration determines state, too.
	migration Migration
}

type action string

const (
	refuse action = "refuse"
	// stop is followed by decideStopped.
	stop action = "stop"
	// proceed removes PauseMarker and runs the CPUs.
	proceed     action = "proceed"
	wakeUp      action = "wake up"
	mark        action = "mark"
	unmark      action = "unmark"
	reset       action = "reset"
	resetAndRun action = "reset and run"
	none        action = "none"
)

type decision struct {
	action  action
	message string
}

func refused(message string) decision { return decision{refuse, message} }

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
		// The target could not know that the guest has to stay paused (decision 297).
		return refused("VMI cannot be paused while it is migrated")
	}
	return decision{action: stop}
}

const refusedHeld = "VMI cannot be paused while its disks are being snapshotted; try again"

// decideStopped decides by the state after a stop: an error of a disk or of QEMU may have stopped the guest first.
func decideStopped(state runstate.State) decision {
	switch {
	case state.Name == runstate.IOError:
		return decision{action: mark}
	case state.Name == runstate.Held:
		// virt-launcher was faster, or will resume the guest that was stopped here.
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

// decideUnpause continues a stopped guest that can run, whatever has stopped it.
func decideUnpause(o observation) decision {
	switch {
	case o.halted && !o.paused:
		return refused("VMI is not paused: it waits for volumes before it starts")
	case o.halted:
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

// A guest that its user has paused stays paused at a reset; one that only an I/O error has stopped runs.
func decideReset(o observation) decision {
	switch {
	case o.state.Outlook != runstate.Runs && o.state.Outlook != runstate.Waits:
		return refused("VMI cannot be reset: " + o.state.Message)
	case o.state.Name == runstate.IOError && !o.paused:
		return decision{action: resetAndRun}
	}
	return decision{action: reset}
}

func decideResume(o observation) decision {
	if o.state.Name == runstate.PausedToMigrate && !o.migration.UnderWay() {
		return decision{action: proceed}
	}
	if o.state.Name != runstate.IOError || o.paused {
		return decision{action: none}
	}
	return decision{action: proceed}
}

// decideBegin lets only a running guest be migrated: the target could not know why a stopped one waits
// (decision 297).
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

// decideReboot returns why a guest can't be asked to reboot, "" if it can. It uses the last known state, since the
// guest itself is asked next.
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

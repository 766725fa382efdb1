// Package power decides about the CPUs of a running guest: users' requests (pause, unpause, reset, reboot), when
// virt-handler resumes a guest by itself, and whether a guest may be sent to another node.
//
// A request gets two decisions: Queue's at its arrival, by the waiting requests, and Decide's in its turn, by QEMU's
// current state. The package must not know how requests arrive, nor how QEMU is asked.
package power

import "drydock.dev/drydock/internal/qemu/runstate"

// Guest is the state of a guest.
type Guest struct {
	State     runstate.State
	Halted    bool // waits for volumes, and has never run
	Paused    bool // QEMU has the marker of a user's pause
	Held      bool // virt-launcher holds the guest still or is about to
	Migrating bool
}

// Action is an action on the guest.
type Action string

// The actions. DecideStopped follows Stop, Proceed also removes the marker of a pause, and Mark adds it to a stopped
// guest.
const (
	Refuse      Action = "refuse"
	Stop        Action = "stop"
	Proceed     Action = "proceed"
	WakeUp      Action = "wake up"
	Mark        Action = "mark"
	Unmark      Action = "unmark"
	PushReset   Action = "reset"
	ResetAndRun Action = "reset and run"
	CtrlAltDel  Action = "press Ctrl-Alt-Del"
	None        Action = "none"
)

// Decision is an action, with the message of a refusal for the user.
type Decision struct {
	Action  Action
	Message string
}

// Refusal is the error of a request that the guest's state does not allow.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

// Refusal returns the error of a decision, nil if it is no refusal.
func (d Decision) Refusal() error {
	if d.Action != Refuse {
		return nil
	}
	return &Refusal{d.Message}
}

func refused(message string) Decision { return Decision{Refuse, message} }

// Decide decides on a request in its turn. An accepted reboot is up to the guest's agent.
func Decide(r Request, g Guest) Decision {
	switch r {
	case Pause:
		return decidePause(g)
	case Unpause:
		return decideUnpause(g)
	case Reset:
		return decideReset(g)
	case Reboot:
		return decideReboot(g, None)
	case PressKeys:
		return decideReboot(g, CtrlAltDel)
	}
	return Decision{Action: None}
}

func decidePause(g Guest) Decision {
	switch {
	case g.Halted && g.Paused:
		return refused("VMI is already paused")
	case g.Halted:
		return Decision{Action: Mark}
	case g.State.Name == runstate.Held:
		return refused(refusedHeld)
	case g.State.Outlook != runstate.Runs && g.State.Name != runstate.IOError:
		return refusePause(g.State)
	case g.Migrating:
		// The target could not know that the guest must stay paused (decision 297).
		return refused("VMI cannot be paused while it is migrated")
	}
	return Decision{Action: Stop}
}

const refusedHeld = "VMI cannot be paused while its disks are being snapshotted; try again"

// DecideStopped decides by the state after Stop: a disk's or QEMU's error may have come first.
func DecideStopped(state runstate.State) Decision {
	switch {
	case state.Name == runstate.IOError:
		return Decision{Action: Mark}
	case state.Name == runstate.Held:
		// virt-launcher was faster, or will resume the guest.
		return refused(refusedHeld)
	case state.Reason != runstate.ReasonPausedByUser:
		return refusePause(state)
	}
	return Decision{Action: None}
}

func refusePause(state runstate.State) Decision {
	if state.Paused {
		return refused("VMI is already paused")
	}
	return refused("VMI cannot be paused: " + state.Message)
}

// The cause of the guest's stop does not matter.
func decideUnpause(g Guest) Decision {
	switch {
	case g.Halted && !g.Paused:
		return refused("VMI is not paused: it waits for volumes before it starts")
	case g.Halted:
		return Decision{Action: Unmark}
	case g.State.Outlook == runstate.Runs:
		return refused("VMI is not paused")
	case g.State.Outlook != runstate.Waits || g.State.Name == runstate.PausedToMigrate && g.Migrating:
		return refused("VMI cannot be unpaused: " + g.State.Message)
	case g.State.Name == runstate.Suspended:
		return Decision{Action: WakeUp}
	}
	return Decision{Action: Proceed}
}

// A guest that a user has paused stays paused; one that only an I/O error has stopped runs.
func decideReset(g Guest) Decision {
	switch {
	case g.State.Outlook != runstate.Runs && g.State.Outlook != runstate.Waits:
		return refused("VMI cannot be reset: " + g.State.Message)
	case g.State.Name == runstate.IOError && !g.Paused:
		return Decision{Action: ResetAndRun}
	}
	return Decision{Action: PushReset}
}

func decideReboot(g Guest, otherwise Action) Decision {
	switch {
	case g.Halted:
		return refused("VMI cannot be rebooted: it waits for volumes before it starts")
	case g.State.Paused:
		return refused("VMI is paused")
	case g.State.Outlook != runstate.Runs:
		return refused("VMI cannot be rebooted: " + g.State.Message)
	}
	return Decision{Action: otherwise}
}

// DecideResume decides whether virt-handler resumes a guest that an I/O error or a failed migration has stopped.
func DecideResume(g Guest) Decision {
	if g.State.Name == runstate.PausedToMigrate && !g.Migrating {
		return Decision{Action: Proceed}
	}
	if g.State.Name != runstate.IOError || g.Paused {
		return Decision{Action: None}
	}
	return Decision{Action: Proceed}
}

// DecideSend lets only a running guest migrate: the target could not know why a stopped one waits (decision 297).
func DecideSend(g Guest) Decision {
	switch {
	case g.Halted:
		return refused("the VMI cannot be migrated: it waits for volumes before it starts")
	case g.Migrating:
		return refused("the VMI cannot be migrated: its QEMU is about to migrate it already")
	case g.Held:
		return refused("the VMI cannot be migrated: its file systems are frozen, or its disks are being snapshotted")
	case g.State.Outlook != runstate.Runs:
		return refused("the VMI cannot be migrated: " + g.State.Message)
	}
	return Decision{Action: None}
}

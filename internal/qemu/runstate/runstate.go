// Package runstate is the table of QEMU's run states: what each means for a guest, the VMI's conditions, and
// virt-handler's action.
//
// It owns the table and its texts: it must not query QEMU, and must not know an API type.
//
//	          stop                     disk fails
//	paused <───────> running <───────────────────> io-error     virt-handler resumes
//	          cont      |        disk works again
//	                    |──> suspended, watchdog, debug          wait for someone
//	                    |──> save-vm, finish-migrate, …          pass by themselves
//	                    '──> internal-error, guest-panicked,     virt-handler ends QEMU
//	                         shutdown
package runstate

import (
	"fmt"
	"strconv"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Outlook is the future of a guest in a run state.
type Outlook string

// The outlooks. A guest that is Over can't continue.
const (
	Runs Outlook = "runs"
	// Waits means that the guest can be resumed.
	Waits Outlook = "waits"
	// Passes means that QEMU leaves the state by itself.
	Passes Outlook = "passes"
	// Moved means that the guest continues in another QEMU: here it would be a second one on the same disks.
	Moved Outlook = "moved"
	Over  Outlook = "over"
	// Unknown means that a newer QEMU has the state.
	Unknown Outlook = "unknown"
)

// Action is virt-handler's action in a run state.
type Action string

// Leave means that virt-handler does nothing.
const (
	Leave Action = "leave"
	// Resume repeats until the guest runs.
	Resume Action = "resume"
	// End means that virt-handler ends QEMU at once.
	End Action = "end"
)

// Reasons of Ready and Paused. The first two are KubeVirt's.
const (
	ReasonPausedByUser     = "PausedByUser"
	ReasonPausedIOError    = "PausedIOError"
	ReasonPausedByWatchdog = "PausedByWatchdog"
	ReasonPausedByDebugger = "PausedByDebugger"
	ReasonSuspended        = "GuestSuspended"
	ReasonMigrating        = "GuestMigrating"
	ReasonMigrated         = "GuestMigrated"
	ReasonSnapshot         = "GuestStateInTransfer"
	ReasonInternalError    = "InternalError"
	ReasonGuestPanicked    = "GuestPanicked"
	ReasonPoweredOff       = "GuestPoweredOff"
	ReasonUnknown          = "UnknownRunState"
	// ReasonWaitingForVolumes is for a guest in Prelaunch that waits for hotpluggable volumes.
	ReasonWaitingForVolumes = "WaitingForVolumes"
)

// Run states that are used in code. PostMigrate follows a migration away.
const (
	Running     = "running"
	Prelaunch   = "prelaunch"
	IOError     = "io-error"
	Suspended   = "suspended"
	InMigrate   = "inmigrate"
	PostMigrate = "postmigrate"
	Paused      = "paused"
)

// PausedToMigrate is not QEMU's: QEMU reports Paused for a guest that is stopped so that its migration ends.
const PausedToMigrate = "paused-to-migrate"

// Held is not QEMU's: QEMU reports Paused for a guest that virt-launcher has stopped for a snapshot. The VMI's status shows
// a running guest (decision 424).
const Held = "held-still"

// State is one of QEMU's run states.
type State struct {
	Name            string
	Outlook         Outlook
	Reason, Message string // of Ready=False; empty for a ready guest
	Paused          bool   // the condition Paused is True, with the same reason
	Action          Action
	// Failure is virt-launcher's reason after virt-handler has ended a guest for this state, empty to use virt-launcher's
	// own facts.
	Failure launch.Reason
	Until   string // the last version of QEMU with the state, empty if QEMU still has it
}

// Ready reports whether a VMI whose guest is in the state is Ready.
func (s State) Ready() bool { return s.Reason == "" }

var pausedToMigrate = State{
	Name: PausedToMigrate, Outlook: Waits, Action: Resume, Reason: ReasonMigrating,
	Message: "The guest is stopped until it has been sent to another node.",
}

var table = []State{
	{Name: Running, Outlook: Runs, Action: Leave},
	{
		Name: Paused, Outlook: Waits, Action: Leave, Paused: true, Reason: ReasonPausedByUser,
		Message: "VMI was paused by user",
	},
	{
		Name: Prelaunch, Outlook: Waits, Action: Leave, Paused: true, Reason: ReasonPausedByUser,
		// Started paused, or reset while it was paused.
		Message: "VMI was paused by user",
	},
	{
		Name: IOError, Outlook: Waits, Action: Resume, Paused: true, Reason: ReasonPausedIOError,
		Message: "The guest is stopped because one of its disks failed. It continues by itself when the disk works again.",
	},
	{
		Name: Suspended, Outlook: Waits, Action: Leave, Reason: ReasonSuspended,
		Message: "The guest has suspended itself (ACPI S3). It continues when it is woken up, for example by 'virtctl unpause'.",
	},
	{
		Name: "watchdog", Outlook: Waits, Action: Leave, Paused: true, Reason: ReasonPausedByWatchdog,
		Message: "The guest's watchdog fired, and QEMU stopped the guest. 'virtctl unpause' lets it continue.",
	},
	{
		Name: "debug", Outlook: Waits, Action: Leave, Paused: true, Reason: ReasonPausedByDebugger,
		Message: "A debugger that is connected to QEMU has stopped the guest.",
	},
	{
		Name: "save-vm", Outlook: Passes, Action: Leave, Reason: ReasonSnapshot,
		Message: "The guest is stopped while QEMU saves its state.",
	},
	{
		Name: "restore-vm", Outlook: Passes, Action: Leave, Reason: ReasonSnapshot,
		Message: "The guest is stopped while QEMU restores its state.",
	},
	{
		Name: "colo", Outlook: Passes, Action: Leave, Reason: ReasonSnapshot,
		Message: "The guest is stopped while QEMU copies its state to a replica (COLO).",
	},
	{
		Name: InMigrate, Outlook: Passes, Action: Leave, Reason: ReasonMigrating,
		Message: "QEMU waits for the guest to arrive from another node.",
	},
	{
		Name: "finish-migrate", Outlook: Passes, Action: Leave, Reason: ReasonMigrating,
		Message: "The guest is stopped while the last of its state is sent to another node.",
	},
	{
		Name: PostMigrate, Outlook: Moved, Action: Leave, Reason: ReasonMigrated,
		Message: "The guest's state was sent to another QEMU. It does not continue here.",
	},
	{
		Name: "preconfig", Outlook: Passes, Action: Leave, Reason: ReasonSnapshot, Until: "5.2",
		Message: "QEMU has not built the machine yet.",
	},
	{
		Name: "internal-error", Outlook: Over, Action: End, Reason: ReasonInternalError, Failure: launch.ReasonInternalError,
		Message: "An error inside QEMU or KVM has stopped the guest, and it cannot continue.",
	},
	{
		Name: "guest-panicked", Outlook: Over, Action: End, Reason: ReasonGuestPanicked, Failure: launch.ReasonGuestPanicked,
		Message: "The guest's kernel panicked, and it cannot continue.",
	},
	{
		Name: "shutdown", Outlook: Over, Action: End, Reason: ReasonPoweredOff,
		Message: "The guest has powered off, and QEMU has not ended.",
	},
}

// All returns every state of the table.
func All() []State { return append([]State(nil), table...) }

// maxName is in bytes: a guest that has taken QEMU over chooses the name.
const maxName = 64

// Of returns the state with a name, PausedToMigrate and Held included. An unknown one is not Ready, and has no action.
func Of(name string) State {
	for _, s := range table {
		if s.Name == name {
			return s
		}
	}
	switch name {
	case PausedToMigrate:
		return pausedToMigrate
	case Held:
		return State{Name: Held, Outlook: Runs, Action: Leave}
	}
	quoted := strconv.QuoteToASCII(name[:min(len(name), maxName)])
	return State{
		Name: name, Outlook: Unknown, Action: Leave, Reason: ReasonUnknown,
		Message: fmt.Sprintf("QEMU reports the run state %s, which Drydock does not know; whether the guest runs cannot be told.", quoted),
	}
}

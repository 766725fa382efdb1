package guestlifecycle

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/switchover"
)

// Role is what a node is to the guest of a VMI.
type Role int

const (
	// Home is the node where the guest runs or is to be started. It may be the source of a
	// migration.
	Home Role = iota
	// Destination is the node that a migration brings the guest to. Its virt-handler owns
	// nothing of the VMI's status but its part of migrationState.
	Destination
	// Former is the node that the guest has left. Its virt-handler owns nothing, and has QEMU
	// end if that is still there.
	Former
)

// RoleOf returns what a node is to the guest of a VMI that it has a pod of.
func RoleOf(vmi *v1.VirtualMachineInstance, node string) Role {
	m := vmi.Status.MigrationState
	switch {
	case m == nil || vmi.Status.NodeName == node:
		return Home
	case m.TargetNode == node:
		return Destination
	case m.SourceNode == node && switchover.Completed(m):
		return Former
	}
	return Home
}

// NextAtDestination chooses the step at the node that a guest migrates to, and when to look again.
// action is what is decided of the guest there, on the same observation.
func NextAtDestination(o Observed, action switchover.TargetAction) (Step, time.Duration) {
	running := o.Link == LinkUp && o.Launcher.Phase == launch.PhaseRunning
	switch {
	case o.Deserted:
		return endDeserted(o, running)
	case o.Link == LinkUp && (action == switchover.Kill || o.Stopping != nil):
		// One that was told to end is not run any more, whatever is heard meanwhile.
		return kill(o)
	case running && !o.Attached:
		return Attach, 0
	case o.Link == LinkNone && o.Launcher.Phase != launch.PhaseExited && reachable(o):
		return Connect, 0
	}
	return nextOfArrival(o, action, running)
}

// nextOfArrival is the step by which a guest that is wanted comes.
func nextOfArrival(o Observed, action switchover.TargetAction, running bool) (Step, time.Duration) {
	switch {
	case action == switchover.StartIncoming && o.Awaits:
		return report(o), 0 // an attachment pod that runs is news
	case action == switchover.StartIncoming && o.Unprobed:
		return report(o), 0
	case action == switchover.StartIncoming:
		return Start, 0
	case action == switchover.MarkAndRun, action == switchover.Run:
		return Take, 0
	case action == switchover.ReportReady:
		// There may be no address to report yet.
		return report(o), addressAgain
	case action == switchover.RecoverIncoming && running && o.Migrate:
		return Migrate, 0
	case action == switchover.TargetWait && running && o.Plug:
		return Plug, 0
	}
	return report(o), o.PlugAfter
}

// NextAtFormer chooses the step at the node that a guest has left: nothing is done there but what is
// decided about the migration, until nothing is left of its QEMU.
func NextAtFormer(o Observed) (Step, time.Duration) {
	switch {
	case o.Launcher.Phase == launch.PhaseExited, o.Link != LinkUp && !reachable(o):
		return Release, 0
	case o.Link == LinkNone:
		return Connect, 0
	case o.Link == LinkUp && o.Launcher.Phase == launch.PhaseRunning && !o.Attached:
		return Attach, 0
	case o.Migrate:
		return Migrate, 0
	case o.Stopping != nil:
		return kill(o)
	}
	return Wait, formerAgain
}

// formerAgain is when it is looked again at what is left of a guest.
const formerAgain = 2 * time.Second

// StatusOf is the run state that a status tells of. A guest that is handed over stands still for a
// moment, and is not worth two writes to the VMI, which the other node is about to write to.
func StatusOf(runState string, handsOver bool) string {
	if handsOver {
		if outlook := runstate.Of(runState).Outlook; outlook == runstate.Passes || outlook == runstate.Moved {
			return runstate.Running
		}
	}
	return runState
}

// addressAgain is when it is looked again for an address of the node.
const addressAgain = time.Second

// kill ends a QEMU without a guest.
func kill(o Observed) (Step, time.Duration) {
	if o.Stopping == nil {
		return Stop, 0
	}
	if left := o.StoppingSince.Add(killAfter).Sub(o.Now); left > 0 {
		return Wait, left
	}
	return Kill, killAfter
}

// ProcessOf is what is known of the QEMU of a VMI's pod on a node.
func ProcessOf(o Observed) switchover.Process {
	switch {
	case o.Launcher.Phase == launch.PhaseExited, o.Pod != nil && (o.Pod.Finished || o.Pod.Gone && !o.Pod.Remains):
		return switchover.ProcessEnded
	case o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting:
		return switchover.ProcessNotStarted
	case o.Attached && o.Link == LinkUp:
		return switchover.ProcessRuns
	}
	return switchover.ProcessUnknown
}

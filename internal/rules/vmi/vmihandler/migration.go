package vmihandler

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Role is a node's relation to a guest.
type Role int

// The roles.
const (
	Home        Role = iota // where the guest runs or is to start
	Destination             // a migration's target; its virt-handler owns only its part of migrationState
	Former                  // left by the guest; its virt-handler owns nothing, and ends QEMU
)

// RoleOf returns the role of a node that has a pod of the VMI.
func RoleOf(vmi *v1.VirtualMachineInstance, node string) Role {
	m := vmi.Status.MigrationState
	switch {
	case vmistatus.HandlerOn(node, &vmi.Status) == vmistatus.TargetHandler:
		return Destination
	case m != nil && m.SourceNode == node && vmi.Status.NodeName != node && switchover.Completed(m):
		return Former
	}
	return Home
}

// NextAtDestination returns the step at a migration's target; action is package switchover's.
func NextAtDestination(o Observed, action switchover.TargetAction) (Step, time.Duration) {
	running := o.Link == LinkUp && o.Launcher.Phase == launch.PhaseRunning
	switch {
	case o.Deserted:
		return endDeserted(o, running)
	case o.Link == LinkUp && (action == switchover.Kill || o.Stopping != nil):
		// A QEMU that was told to end never runs its guest.
		return kill(o)
	}
	if action == switchover.RecoverIncoming && running {
		if step := stepOfRecovery(o); step != Wait {
			return step, 0
		}
	}
	switch {
	case running && !o.Attached:
		return Attach, 0
	case o.Link == LinkNone && o.Launcher.Phase != launch.PhaseExited && reachable(o):
		return Connect, 0
	}
	return nextOfArrival(o, action, running)
}

// stepOfRecovery comes before Attach, which a QEMU that waits for memory may not answer.
func stepOfRecovery(o Observed) Step {
	switch {
	case o.Migrate:
		return Migrate
	case !o.Attached:
		// The source must learn the address of a virt-handler that was restarted.
		return report(o)
	}
	return Wait
}

func nextOfArrival(o Observed, action switchover.TargetAction, running bool) (Step, time.Duration) {
	switch {
	case action == switchover.StartIncoming && o.Awaits:
		return report(o), 0 // a running attachment pod causes an event
	case action == switchover.StartIncoming && o.Unprobed:
		return report(o), 0
	case action == switchover.StartIncoming:
		return Start, 0
	case action == switchover.MarkAndRun, action == switchover.Run:
		return Take, 0
	case action == switchover.ReportReady:
		// There may be no address yet.
		return report(o), addressAgain
	case action == switchover.TargetWait && running && o.Plug:
		return Plug, 0
	}
	return report(o), o.PlugAfter
}

// NextAtFormer returns the step at the node that the guest has left: the migration's, until QEMU is gone.
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

const formerAgain = 2 * time.Second

// StatusOf returns the run state for the status. It hides the stop of a switchover, which is too short for two writes to a
// VMI that the other node will soon write.
func StatusOf(runState string, handsOver bool) string {
	if handsOver {
		if outlook := runstate.Of(runState).Outlook; outlook == runstate.Passes || outlook == runstate.Moved {
			return runstate.Running
		}
	}
	return runState
}

const addressAgain = time.Second

func kill(o Observed) (Step, time.Duration) {
	if o.Stopping == nil {
		return Stop, 0
	}
	if left := o.StoppingSince.Add(killAfter).Sub(o.Now); left > 0 {
		return Wait, left
	}
	return Kill, killAfter
}

// ProcessOf returns the state of QEMU in the pod.
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

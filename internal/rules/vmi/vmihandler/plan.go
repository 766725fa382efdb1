// Package vmihandler decides which steps virt-handler takes for a VirtualMachineInstance on its
// node, and which status the VMI gets.
//
// It does no I/O and reads no clock. Next returns the next step for an observation, Status the status for the facts,
// and Patch the smallest patch between two statuses. Any observation may be the first one after a restart of
// virt-handler, so earlier decisions are no input.
//
//	            pod bound
//	Scheduled ──────────> Connect ──hello──> waiting: Start ──┐
//	                         │                                ├──> Report ──> Wait
//	                         │               running: Attach ─┘      ^
//	                         │                                       │ run state, agent, pod
//	                         └──────────────> exited: Report (final) │
//	   deletion, a final phase, the VMI or its pod gone while QEMU runs, or a guest
//	   that cannot continue: Stop, then Kill
//	   a guest stopped by an I/O error: Resume, repeatedly
//	   a guest whose CPUs wait for volumes: Begin (Halt)
//	   a guest that migrates: Migrate, as package switchover decides
//
// At the target of a migration, NextAtDestination decides instead (Role):
//
//	Connect ──> Start ──> Attach ──> Report (ready) ──> Plug ──> Take ──> Report (completed)
//	   a guest that is not to come any more, and has not run: Stop, then Kill
//
// Invariants:
//   - Start requires the phase Scheduled, a VMI without deletion, a pod that status.activePods lists
//     for this node, and a virt-launcher that reports that it has started nothing.
//   - The phase never goes back, and a final phase is never changed.
package vmihandler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Step is an action, whose effect is another observation.
type Step string

const (
	// Wait does nothing until a fact changes.
	Wait Step = "Wait"
	// Connect waits for the launcher's socket and connects to it.
	Connect Step = "Connect"
	// Start prepares network and disks and starts QEMU.
	Start Step = "Start"
	// Attach takes over a running QEMU: network, monitor.
	Attach Step = "Attach"
	// Resume continues a guest that an I/O error has stopped.
	Resume Step = "Resume"
	// Begin starts the CPUs of a guest that has waited for volumes.
	Begin Step = "Begin"
	// Plug plugs and unplugs disks.
	Plug Step = "Plug"
	// SwitchLinks sets the links of the guest's interfaces.
	SwitchLinks Step = "SwitchLinks"
	// PlugNICs plugs and unplugs interfaces.
	PlugNICs Step = "PlugNICs"
	// ChangeCPUs plugs virtual CPUs, or asks the guest to release some.
	ChangeCPUs Step = "ChangeCPUs"
	// ChangeMemory plugs memory, or asks the guest to release some.
	ChangeMemory Step = "ChangeMemory"
	// Migrate acts on a guest that leaves the node, or whose memory follows it (package switchover).
	Migrate Step = "Migrate"
	// Take runs a guest that has arrived by migration.
	Take Step = "Take"
	// Report updates the VMI's status.
	Report Step = "Report"
	// Stop lets virt-launcher end QEMU within the grace period.
	Stop Step = "Stop"
	// Kill ends a virt-launcher that did not stop in time.
	Kill Step = "Kill"
	// Release frees everything; nothing is left to do here.
	Release Step = "Release"
)

// Pod is the launcher pod.
type Pod struct {
	UID types.UID
	// Finished means that none of its processes runs.
	Finished bool
	// Ended means that virt-launcher's container has ended, according to the kubelet.
	Ended bool
	// Ready includes the readiness probe.
	Ready bool
	// Interrupted means that the pod is being deleted, or marked because its node does not respond:
	// virt-controller owns the VMI's condition Ready then.
	Interrupted bool
	Terminating bool
	Disruption  vmistatus.Disruption
	// Resources are the container's resources according to the kubelet, nil if it does not report them.
	Resources *corev1.ResourceRequirements
	// Gone means that the API server does not have the pod, Remains that the node still has some of it.
	Gone, Remains bool
}

// Link is the connection to virt-launcher.
type Link string

const (
	// LinkNone means neither a connection nor an attempt.
	LinkNone Link = ""
	// LinkPending means that the socket is awaited.
	LinkPending Link = "pending"
	// LinkUp means that virt-launcher has sent its hello.
	LinkUp Link = "up"
)

// Observed is the input of Next.
type Observed struct {
	// VMI is nil when it is not this node's any more.
	VMI *v1.VirtualMachineInstance
	// Deserted means that the API server does not have the VMI; VMI is its last version.
	Deserted bool
	Node     string
	Pod      *Pod
	Link     Link
	// Launcher is virt-launcher's report. It is kept after the connection's end if QEMU had ended.
	Launcher launch.State
	// ExitedIn is the pod of a QEMU that has ended, "" if it has not.
	ExitedIn types.UID
	// Attached means that the monitor is connected and the network is served.
	Attached bool
	// RunState is QEMU's; "" while it is not attached.
	RunState string
	// Resume means that a guest with an I/O error is to continue.
	Resume  bool
	Migrate bool
	// Halted means that the guest's CPUs have never been started, Begin that they are to be started now.
	Halted, Begin bool
	// Stopping is the grace period in seconds that virt-launcher got at StoppingSince, nil if it was not told to stop.
	Stopping      *int64
	StoppingSince time.Time
	// Plug means that disks can be plugged or unplugged; PlugAfter is when to look again at them
	// and the run state, 0 for never.
	Plug      bool
	PlugAfter time.Duration
	// Change is the step of the first concern of virt-handler's list that has one now, "" for none.
	Change Step
	// Awaits means that volumes of an arriving guest are not here yet.
	Awaits bool
	// ReasonAfter is how long the status waits for the reason of the guest's end, 0 if it does not.
	ReasonAfter time.Duration
	// Unprobed means that the node's probe for accelerators has no result yet.
	Unprobed bool
	Changed  bool
	Now      time.Time
}

// Next returns the next step, and when to look again, 0 for never.
func Next(o Observed) (Step, time.Duration) {
	if o.VMI == nil {
		return Release, 0
	}
	running := o.Link == LinkUp && o.Launcher.Phase == launch.PhaseRunning
	if o.Deserted {
		return endDeserted(o, running)
	}
	switch {
	case begunAnew(o):
		return Release, 0
	case o.Launcher.Phase == launch.PhaseExited:
		return report(o), o.ReasonAfter
	case running && mustEnd(o):
		return stop(o)
	case o.VMI.IsFinal():
		return stepOfEnded(o), 0
	}
	if step := advance(o, running); step != Wait {
		return step, 0
	}
	if podGone(o) {
		return report(o), remainsAgain
	}
	return report(o), o.PlugAfter
}

// begunAnew reports whether the ended guest is an earlier one of a VMI that went through
// maintenance since: its end does not concern the next one.
func begunAnew(o Observed) bool {
	_, named := o.VMI.Status.ActivePods[o.ExitedIn]
	return o.ExitedIn != "" && !named && !o.VMI.IsFinal() && (vmistatus.StageOf(o.VMI.Status.Phase) == vmistatus.Waiting || o.VMI.Status.Phase == v1.Scheduled)
}

func advance(o Observed, running bool) Step {
	switch {
	case running && !o.Attached:
		return Attach
	case o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting && mayStart(o):
		return Start
	case o.Link == LinkNone && reachable(o):
		return Connect
	case running:
		return stepOfRunning(o)
	}
	return Wait
}

// The removal of a deleted pod's remains causes no event.
const remainsAgain = 2 * time.Second

// endDeserted ends the guest of a VMI whose finalizers somebody has removed.
func endDeserted(o Observed, running bool) (Step, time.Duration) {
	switch {
	case running:
		return stop(o)
	case o.Launcher.Phase == launch.PhaseExited, o.Link == LinkUp, !reachable(o):
		return Release, 0
	case o.Link == LinkNone:
		return Connect, 0
	}
	return Wait, remainsAgain
}

// podGone reports whether the pod was deleted by force, so that its processes may still run.
func podGone(o Observed) bool { return o.Pod != nil && o.Pod.Gone }

func stepOfRunning(o Observed) Step {
	known := o.VMI.Status.Phase == v1.Running
	switch {
	case o.Migrate:
		return Migrate
	case o.Resume:
		return Resume
	case o.Change == SwitchLinks:
		return SwitchLinks // Links are switched before the guest sees them.
	case o.Begin && known:
		return Begin
	case o.Plug && known:
		return Plug
	case o.Change != "" && known:
		return o.Change
	}
	return Wait
}

func mayStart(o Observed) bool {
	return o.VMI.Status.Phase == v1.Scheduled && o.VMI.DeletionTimestamp == nil && active(o) && !o.Unprobed
}

// active reports whether virt-controller has chosen this pod on this node to run the guest.
func active(o Observed) bool {
	return o.Pod != nil && !o.Pod.Gone && o.VMI.Status.ActivePods[o.Pod.UID] == o.Node
}

// reachable reports whether a virt-launcher may listen now or later.
func reachable(o Observed) bool {
	return o.Pod != nil && !o.Pod.Finished && (!o.Pod.Gone || o.Pod.Remains) &&
		vmistatus.StageOf(o.VMI.Status.Phase) != vmistatus.Waiting
}

// stepOfEnded watches the pod of an ended VMI, in case its QEMU still runs.
func stepOfEnded(o Observed) Step {
	if o.Link == LinkNone && reachable(o) {
		return Connect
	}
	return Wait
}

func report(o Observed) Step {
	if o.Changed {
		return Report
	}
	return Wait
}

// Lost reports whether the status has a running guest that virt-launcher does not know, because it was restarted.
func Lost(o Observed) bool {
	return o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting &&
		o.VMI != nil && o.VMI.Status.Phase == v1.Running
}

// Package vmihandler decides virt-handler's steps for a VirtualMachineInstance on its node, and the VMI's status. It must
// do no I/O and read no clock.
//
// Next returns the next step for an observation, Status the status for the facts, and Patch the smallest patch between two
// statuses. Earlier decisions are no input: any observation may be the first after a restart of virt-handler.
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
//	   a guest that will not come, and has not run: Stop, then Kill
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

// Step is an action. Its effect is another observation.
type Step string

// The steps.
const (
	Wait         Step = "Wait"
	Connect      Step = "Connect" // await the launcher's socket
	Start        Step = "Start"   // prepare network and disks, start QEMU
	Attach       Step = "Attach"  // take over a running QEMU: network, monitor
	Resume       Step = "Resume"  // after an I/O error
	Begin        Step = "Begin"   // start CPUs that have waited for volumes
	Plug         Step = "Plug"    // and unplug disks
	SwitchLinks  Step = "SwitchLinks"
	PlugNICs     Step = "PlugNICs"
	ChangeCPUs   Step = "ChangeCPUs"
	ChangeMemory Step = "ChangeMemory"
	DumpMemory   Step = "DumpMemory"
	PinCPUs      Step = "PinCPUs"
	Migrate      Step = "Migrate" // a guest that leaves the node, or whose memory follows it (package switchover)
	Take         Step = "Take"    // run a guest that has arrived by migration
	Report       Step = "Report"
	Stop         Step = "Stop"    // let virt-launcher end QEMU within the grace period
	Kill         Step = "Kill"    // end a virt-launcher that did not stop in time
	Release      Step = "Release" // free everything
)

// Pod is the launcher pod.
type Pod struct {
	UID      types.UID
	Finished bool // none of its processes runs
	Ended    bool // virt-launcher's container has, by the kubelet's report
	Ready    bool // its readiness probe, too
	// Interrupted means that the pod is being deleted, or marked because its node does not respond: then virt-controller
	// owns Ready.
	Interrupted   bool
	Terminating   bool
	Disruption    vmistatus.Disruption
	Resources     *corev1.ResourceRequirements // the container's; nil if the kubelet does not report them
	Gone, Remains bool                         // the API server does not have it; the node still has some of it
}

// Link is the connection to virt-launcher.
type Link string

// The states of a connection.
const (
	LinkNone    Link = ""
	LinkPending Link = "pending" // the socket is awaited
	LinkUp      Link = "up"      // virt-launcher has sent its hello
)

// Observed is the input of Next.
type Observed struct {
	VMI *v1.VirtualMachineInstance // nil when it is not this node's any more
	// Deserted means that VMI is the last version of one that the API server no longer has.
	Deserted bool
	Node     string
	Pod      *Pod
	Link     Link
	// Launcher stays after the connection's end if QEMU had ended.
	Launcher      launch.State
	ExitedIn      types.UID // pod of a QEMU that has ended
	Attached      bool      // the monitor is connected and the network is served
	RunState      string    // QEMU's; "" while it is not attached
	Resume        bool
	Migrate       bool
	Halted, Begin bool   // the CPUs have never been started; are to be started now
	Stopping      *int64 // seconds that virt-launcher got at StoppingSince
	StoppingSince time.Time
	Plug          bool
	PlugAfter     time.Duration // when to look again at disks and run state, 0 for never
	Change        Step          // of the first concern of virt-handler's list that has one
	Awaits        bool          // volumes of an arriving guest are not here yet
	ReasonAfter   time.Duration
	Unprobed      bool // the node's probe for accelerators has no result yet
	Changed       bool
	Now           time.Time
}

// Next returns the next step, and the delay until the next decision, 0 for never.
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
		if o.Link == LinkNone && reachable(o) {
			return Connect, 0 // its QEMU may still run
		}
		return Wait, 0
	}
	if step := advance(o, running); step != Wait {
		return step, 0
	}
	if podGone(o) {
		return report(o), remainsAgain
	}
	return report(o), o.PlugAfter
}

// begunAnew reports whether the ended guest precedes the VMI's maintenance.
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

// endDeserted ends the guest of a VMI without finalizers, which somebody has removed.
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

// A pod that was deleted by force may still have processes.
func podGone(o Observed) bool { return o.Pod != nil && o.Pod.Gone }

func stepOfRunning(o Observed) Step {
	known := o.VMI.Status.Phase == v1.Running
	switch {
	case o.Migrate:
		return Migrate
	case o.Resume:
		return Resume
	case o.Change == SwitchLinks:
		return SwitchLinks // before the guest sees them
	case o.Begin && known:
		return Begin
	case o.Plug && known:
		return Plug
	case o.Change != "" && known:
		return o.Change
	}
	return Wait
}

// virt-controller must have chosen this pod on this node to run the guest.
func mayStart(o Observed) bool {
	return o.VMI.Status.Phase == v1.Scheduled && o.VMI.DeletionTimestamp == nil &&
		o.Pod != nil && !o.Pod.Gone && o.VMI.Status.ActivePods[o.Pod.UID] == o.Node && !o.Unprobed
}

// reachable reports whether a virt-launcher may listen now or later.
func reachable(o Observed) bool {
	return o.Pod != nil && !o.Pod.Finished && (!o.Pod.Gone || o.Pod.Remains) &&
		vmistatus.StageOf(o.VMI.Status.Phase) != vmistatus.Waiting
}

func report(o Observed) Step {
	if o.Changed {
		return Report
	}
	return Wait
}

// Lost reports whether a restarted virt-launcher does not know the running guest of the status.
func Lost(o Observed) bool {
	return o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting &&
		o.VMI != nil && o.VMI.Status.Phase == v1.Running
}

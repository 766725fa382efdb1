// Package guestlifecycle decides what virt-handler does for one VirtualMachineInstance on
// its node, and what the VMI's status says about it.
//
// It is pure: it opens nothing, asks no clock and writes nowhere. Next gives
// the next step from what was observed; Status gives the status from the facts;
// Patch gives the smallest patch between two statuses. Every observation may be
// the first one after virt-handler was killed, so nothing that was decided
// earlier is an input, only what is so now.
//
//	            pod bound
//	Scheduled ──────────> Connect ──hello──> waiting: Start ──┐
//	                         │                                ├──> Report ──> Wait
//	                         │               running: Attach ─┘      ^
//	                         │                                       │ run state, agent, pod
//	                         └──────────────> exited: Report (final) │
//	   deletion, a final phase, the VMI or its pod gone while QEMU runs, or a guest
//	   that cannot continue: Stop, then Kill
//	   a guest that an I/O error has stopped: Resume, again and again
//	   a guest whose CPUs wait for volumes: Begin when it has them (Halt)
//	   a guest that is migrated: Migrate, as package switchover decides
//
// On the node that a guest migrates to, NextAtDestination chooses instead (Role):
//
//	Connect ──> Start ──> Attach ──> Report (ready) ──> Plug ──> Take ──> Report (completed)
//	   a guest that is not to come any more, and has not run: Stop, then Kill
//
// Invariants:
//   - Start is chosen only for phase Scheduled, for a VMI that is not to go, in
//     a pod that status.activePods names for this node, of a virt-launcher that
//     says it has started nothing yet.
//   - The phase never goes back, and a final phase is never changed.
package guestlifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Step is one thing to do. Whatever comes of it is another observation.
type Step string

const (
	// Wait does nothing until something changes.
	Wait Step = "Wait"
	// Connect follows the launcher's socket and connects to it.
	Connect Step = "Connect"
	// Start prepares network and disks and has QEMU started.
	Start Step = "Start"
	// Attach takes over a QEMU that runs: network, monitor.
	Attach Step = "Attach"
	// Resume tells a guest that an I/O error has stopped to continue.
	Resume Step = "Resume"
	// Begin starts the CPUs of a guest that has waited for volumes.
	Begin Step = "Begin"
	// Plug brings hot-plugged disks into the guest that runs, or takes them out.
	Plug Step = "Plug"
	// SwitchLinks brings the links of the guest's interfaces to the states that the VMI asks for.
	SwitchLinks Step = "SwitchLinks"
	// PlugNICs brings interfaces into the guest that runs, or takes them out.
	PlugNICs Step = "PlugNICs"
	// ChangeCPUs plugs virtual CPUs, or asks the guest to give some back.
	ChangeCPUs Step = "ChangeCPUs"
	// ChangeMemory gives the guest memory, or asks it to give some back.
	ChangeMemory Step = "ChangeMemory"
	// Migrate does what is decided about a guest that leaves the node, or whose memory comes after it (package
	// switchover).
	Migrate Step = "Migrate"
	// Take runs a guest that a migration has brought to the node.
	Take Step = "Take"
	// Report brings the VMI's status up to date.
	Report Step = "Report"
	// Stop has virt-launcher end QEMU within the grace period.
	Stop Step = "Stop"
	// Kill ends the launcher's process, which has not done as it was told.
	Kill Step = "Kill"
	// Release lets go of everything: nothing is left to do here.
	Release Step = "Release"
)

// Pod is the launcher pod as far as it matters here.
type Pod struct {
	UID types.UID
	// Finished means that none of its processes runs any more.
	Finished bool
	// Ready is the kubelet's opinion, readiness probe included.
	Ready bool
	// Interrupted means that the pod is being deleted, or that Kubernetes has marked
	// it as one of a node that does not answer: what the VMI's condition Ready says
	// is virt-controller's then.
	Interrupted bool
	// Terminating means that the pod is being deleted.
	Terminating bool
	// Disruption is what the pod says of why it is ended.
	Disruption vmistatus.Disruption
	// Resources are what the kubelet says that the guest's container has, nil if it does not say.
	Resources *corev1.ResourceRequirements
	// Gone means that the pod's object does not exist any more, as the API server
	// has said; Remains that the node has something left of the pod.
	Gone, Remains bool
}

// Link is the connection to virt-launcher.
type Link string

const (
	// LinkNone means that there is no connection, and no attempt at one.
	LinkNone Link = ""
	// LinkPending means that the socket is being followed.
	LinkPending Link = "pending"
	// LinkUp means that virt-launcher has said hello.
	LinkUp Link = "up"
)

// Observed is what a step is chosen on.
type Observed struct {
	// VMI is nil when it is not this node's any more.
	VMI *v1.VirtualMachineInstance
	// Deserted means that the VMI does not exist any more, as the API server has
	// said. VMI is what was last known of it.
	Deserted bool
	// Node is this node's name.
	Node string
	// Pod is nil when the node has no launcher pod of the VMI.
	Pod  *Pod
	Link Link
	// Launcher is what virt-launcher said; it stays after the connection has
	// ended if QEMU had ended by then.
	Launcher launch.State
	// ExitedIn is the pod in which QEMU had ended then, "" if it had not.
	ExitedIn types.UID
	// Attached means that QEMU's monitor is connected and the network served.
	Attached bool
	// RunState is QEMU's; empty while QEMU is not attached.
	RunState string
	// Resume means that a guest that an I/O error has stopped is to be told to
	// continue.
	Resume bool
	// Migrate means that something is to be done about a migration that the guest leaves
	// the node with.
	Migrate bool
	// Halted means that the guest's CPUs have never been started, and Begin that
	// they are to be now.
	Halted, Begin bool
	// Stopping is the grace period in seconds that virt-launcher was given, nil
	// when it was not told to stop, and StoppingSince when that was.
	Stopping      *int64
	StoppingSince time.Time
	// Plug means that something can be done about hot-plugged disks; PlugAfter is
	// when there will be something to do about them or the guest's run state, 0 for
	// never.
	Plug      bool
	PlugAfter time.Duration
	// NICs means that something can be done about interfaces that come or go.
	NICs bool
	// LinksDiffer means that links of the guest's interfaces are to be switched.
	LinksDiffer bool
	// CPUsDiffer means that the guest is to get virtual CPUs, or to be asked for some, now.
	CPUsDiffer bool
	// MemoryDiffers means that the guest is to be given memory, or to be asked for some, now.
	MemoryDiffers bool
	// Awaits means that volumes which come along with a migration are not on this node yet.
	Awaits bool
	// Unprobed means that it is not known yet what guests of the node run with.
	Unprobed bool
	// Changed means that the status that follows from the facts differs from
	// the one that the VMI has.
	Changed bool
	Now     time.Time
}

// Next chooses the step, and when to look again if nothing else happens; zero
// for never.
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
		return report(o), 0
	case running && mustEnd(o):
		return stop(o)
	case o.VMI.IsFinal():
		return rest(o), 0
	}
	if step := advance(o, running); step != Wait {
		return step, 0
	}
	if podGone(o) {
		return report(o), remainsAgain
	}
	return report(o), o.PlugAfter
}

// begunAnew reports whether the guest that has ended was an earlier one of the VMI's, which went through maintenance since:
// its end is nothing to tell of the next one. All that is known of it is let go of.
func begunAnew(o Observed) bool {
	_, named := o.VMI.Status.ActivePods[o.ExitedIn]
	return o.ExitedIn != "" && !named && !o.VMI.IsFinal() && (vmistatus.StageOf(o.VMI.Status.Phase) == vmistatus.Waiting || o.VMI.Status.Phase == v1.Scheduled)
}

// advance is the next step of a guest that shall run: towards its start, and then what
// is to be done about it.
func advance(o Observed, running bool) Step {
	switch {
	case running && !o.Attached:
		return Attach
	case o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting && mayStart(o):
		return Start
	case o.Link == LinkNone && reachable(o):
		return Connect
	case running:
		return tend(o)
	}
	return Wait
}

// remainsAgain is when the node is looked at again for what is left of a pod that
// is gone: nothing tells of the end of a folder.
const remainsAgain = 2 * time.Second

// endDeserted ends the guest of a VMI that does not exist any more: somebody has
// taken its finalizers away.
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

// podGone reports whether the pod's object was taken away while its processes
// may run: somebody has deleted it by force.
func podGone(o Observed) bool { return o.Pod != nil && o.Pod.Gone }

// tend is what is to be done about a guest that is there and shall be.
func tend(o Observed) Step {
	known := o.VMI.Status.Phase == v1.Running
	switch {
	case o.Migrate:
		return Migrate
	case o.Resume:
		return Resume
	case o.LinksDiffer:
		return SwitchLinks // before the guest sees them for the first time
	case o.Begin && known:
		return Begin
	case o.Plug && known:
		return Plug
	case o.NICs && known:
		return PlugNICs
	case o.CPUsDiffer && known:
		return ChangeCPUs
	case o.MemoryDiffers && known:
		return ChangeMemory
	}
	return Wait
}

// mayStart is the gate of a guest's one start.
func mayStart(o Observed) bool {
	return o.VMI.Status.Phase == v1.Scheduled && o.VMI.DeletionTimestamp == nil && active(o) && !o.Unprobed
}

// active reports whether the controller has chosen this pod on this node to run
// the guest.
func active(o Observed) bool {
	return o.Pod != nil && !o.Pod.Gone && o.VMI.Status.ActivePods[o.Pod.UID] == o.Node
}

// reachable reports whether a virt-launcher may be listening, or about to.
func reachable(o Observed) bool {
	return o.Pod != nil && !o.Pod.Finished && (!o.Pod.Gone || o.Pod.Remains) &&
		vmistatus.StageOf(o.VMI.Status.Phase) != vmistatus.Waiting
}

// rest keeps an eye on the pod of a VMI that is over, in case its QEMU is not.
func rest(o Observed) Step {
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

// Lost reports whether the guest ran, as the VMI's status says, under a
// virt-launcher that has been started anew since and knows nothing of it.
func Lost(o Observed) bool {
	return o.Link == LinkUp && o.Launcher.Phase == launch.PhaseWaiting &&
		o.VMI != nil && o.VMI.Status.Phase == v1.Running
}

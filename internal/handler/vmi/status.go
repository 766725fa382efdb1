package vmi

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/launch"
	"drydock.dev/drydock/internal/machine"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/vmilife"
)

// Facts are what a status is made of: what is so, from whoever knows it.
type Facts struct {
	// Exit says how QEMU ended; nil while it has not.
	Exit *launch.Exit
	// Lost means that the guest ran and does not any more, and that nobody
	// knows how it ended.
	Lost bool
	// Vanished means that the launcher pod was deleted by force, and that nothing
	// of it is left on the node: nobody has heard how the guest ended.
	Vanished bool
	// Guest is the guest that runs; nil while none does or none is known.
	Guest *Guest
	// PodReady is the kubelet's opinion of the launcher pod.
	PodReady bool
	// PodInterrupted means that what Ready says is virt-controller's.
	PodInterrupted bool
	// Failure is why the last step failed; nil when it did not.
	Failure error
	Now     time.Time
}

// Guest is what is known of a running guest.
type Guest struct {
	// RunState is QEMU's (query-status).
	RunState string
	// Stalled means that an I/O error has stopped the guest, or had until a moment
	// ago; FailedDisks are the disks that it was on, as far as they are known.
	Stalled     bool
	FailedDisks []FailedDisk
	// PausedByUser means that the guest is to stay stopped even if the disks work
	// again.
	PausedByUser bool
	// Halt is set while the guest's CPUs have not been started, because they wait
	// for volumes.
	Halt *Halt
	// MachineType is what QEMU's machine is.
	MachineType string
	// SELinuxContext is the launcher's, empty on a node without SELinux.
	SELinuxContext string
	Interfaces     []Interface
	Volumes        map[string]Volume
	// Plugged is what is known of the volumes that come and go.
	Plugged map[string]Plugged
	// Agent is what the guest agent told; nil while it is not connected.
	Agent *Agent
}

// Interface is one of the guest's interfaces as virt-handler made it.
type Interface struct {
	Name, MAC, PodInterface string
	IPs                     []string
	Queues                  int
}

// Volume is what is known of the disk behind a volume.
type Volume struct {
	// Size is the guest's disk size in bytes, 0 when it is not known.
	Size int64
	// Claim is the PersistentVolumeClaim's own information, nil without one.
	Claim *v1.PersistentVolumeClaimInfo
}

// Plugged is what is known of a volume that comes and goes.
type Plugged struct {
	// Phase is empty when virt-handler has nothing to say of it.
	Phase           v1.VolumePhase
	Reason, Message string
	// PodName and PodUID are the attachment pod that serves it.
	PodName string
	PodUID  types.UID
	Size    int64
}

// Agent is what the guest agent told.
type Agent struct {
	OS         v1.VirtualMachineInstanceGuestOSInfo
	Interfaces []v1.VirtualMachineInstanceNetworkInterface
}

// reasonSyncFailed is KubeVirt's for the condition Synchronized of a VMI whose
// node has trouble with it.
const reasonSyncFailed = "Synchronizing with the Domain failed."

// Status is the status that the VMI should have. It changes only the fields
// that virt-handler owns.
func Status(vmi *v1.VirtualMachineInstance, f Facts) v1.VirtualMachineInstanceStatus {
	status := *vmi.Status.DeepCopy()
	if vmi.IsFinal() {
		return status
	}
	switch {
	case f.Exit != nil:
		finish(&status, endOf(vmi, *f.Exit), f.Now)
	case f.Lost:
		finish(&status, ending{failed: true, reason: "GuestLost", message: "The guest is gone, and its launcher does not know how it ended."}, f.Now)
	case f.Vanished:
		finish(&status, ending{failed: true, reason: "LauncherPodGone", message: "The launcher pod was deleted by force, and the guest has ended with it."}, f.Now)
	case f.Guest != nil:
		describe(vmi, &status, f)
	}
	synchronized(&status, f)
	return status
}

func synchronized(status *v1.VirtualMachineInstanceStatus, f Facts) {
	if f.Failure == nil || isFinal(status.Phase) {
		dropOwn(status, v1.VirtualMachineInstanceSynchronized, reasonSyncFailed)
		return
	}
	condition.Set(&status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse,
		Reason: reasonSyncFailed, Message: f.Failure.Error(),
	}, f.Now)
}

// describe is the status of a guest that runs.
func describe(vmi *v1.VirtualMachineInstance, status *v1.VirtualMachineInstanceStatus, f Facts) {
	enter(status, v1.Running, f.Now)
	g := f.Guest
	if g.MachineType != "" {
		status.Machine = &v1.Machine{Type: g.MachineType}
	}
	status.SelinuxContext = g.SELinuxContext
	status.CurrentCPUTopology = new(machine.Topology(&vmi.Spec))
	describeMemory(vmi, status)
	status.Interfaces = interfaces(vmi, g)
	status.VolumeStatus = volumes(vmi, status.VolumeStatus, g)
	known := knownClaims(status.VolumeStatus, g.Volumes)
	status.MigrationMethod = migrationMethod(vmi, status.VolumeStatus, known)
	describeReady(vmi, status, f)
	describePaused(status, g, f.Now)
	describeAgent(status, g.Agent, f.Now)
	condition.Set(&status.Conditions, liveMigratable(vmi, status.VolumeStatus, known), f.Now)
}

func describeMemory(vmi *v1.VirtualMachineInstance, status *v1.VirtualMachineInstanceStatus) {
	size := machine.GuestMemory(&vmi.Spec)
	if size == 0 || status.Memory != nil {
		return
	}
	guest := resource.NewQuantity(size, resource.BinarySI)
	status.Memory = &v1.MemoryStatus{GuestAtBoot: guest, GuestCurrent: guest, GuestRequested: guest}
}

// runState is the run state that the VMI tells of.
func (g *Guest) runState(list []v1.VolumeStatus) runstate.State {
	if g.Halt != nil {
		return g.Halt.state(list, g.PausedByUser)
	}
	if g.Stalled {
		state := runstate.Of(runstate.IOError)
		state.Message = stallMessage(g.FailedDisks, g.PausedByUser)
		return state
	}
	return runstate.Of(g.RunState)
}

// describeReady leaves alone what virt-controller has to say: that the pod is being
// deleted or is gone, which nothing takes back, or that the node does not answer,
// for as long as Kubernetes says so.
func describeReady(vmi *v1.VirtualMachineInstance, status *v1.VirtualMachineInstanceStatus, f Facts) {
	if f.PodInterrupted || vmilife.Interrupted(vmi) {
		return
	}
	ready := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}
	state := f.Guest.runState(status.VolumeStatus)
	switch {
	case !state.Ready():
		ready.Status = corev1.ConditionFalse
		ready.Reason, ready.Message = state.Reason, state.Message
	case vmi.Spec.ReadinessProbe != nil && !f.PodReady:
		ready.Status = corev1.ConditionFalse
		ready.Reason = "ReadinessProbeNotPassed"
		ready.Message = "The guest runs, and its readiness probe has not succeeded yet."
	}
	condition.Set(&status.Conditions, ready, f.Now)
}

func describePaused(status *v1.VirtualMachineInstanceStatus, g *Guest, now time.Time) {
	state := g.runState(status.VolumeStatus)
	if !state.Paused {
		condition.Drop(&status.Conditions, v1.VirtualMachineInstancePaused)
		return
	}
	paused := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: state.Reason, Message: state.Message,
	}
	if g.PausedByUser {
		paused.Reason = runstate.ReasonPausedByUser
	}
	condition.Set(&status.Conditions, paused, now)
}

func describeAgent(status *v1.VirtualMachineInstanceStatus, agent *Agent, now time.Time) {
	if agent == nil {
		condition.Drop(&status.Conditions, v1.VirtualMachineInstanceAgentConnected)
		status.GuestOSInfo = v1.VirtualMachineInstanceGuestOSInfo{}
		return
	}
	status.GuestOSInfo = agent.OS
	condition.Set(&status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue,
	}, now)
}

// AgentOf reads back from a status what the agent told when it was written; nil
// when none was connected.
func AgentOf(status v1.VirtualMachineInstanceStatus) *Agent {
	if !condition.IsTrue(status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return nil
	}
	agent := &Agent{OS: status.GuestOSInfo}
	for _, i := range status.Interfaces {
		if strings.Contains(i.InfoSource, infoAgent) {
			agent.Interfaces = append(agent.Interfaces, v1.VirtualMachineInstanceNetworkInterface{
				InterfaceName: i.InterfaceName, MAC: i.MAC, IP: i.IP, IPs: i.IPs,
			})
		}
	}
	return agent
}

// ending is how a VMI comes to its end.
type ending struct {
	failed          bool
	reason, message string
}

// endOf words QEMU's end for the VM's owner.
func endOf(vmi *v1.VirtualMachineInstance, exit launch.Exit) ending {
	if vmi.Status.Phase == v1.Scheduled && vmi.DeletionTimestamp == nil && exit.Reason == launch.ReasonHostShutdown {
		// Nobody wanted this VMI to end: its pod was deleted, or evicted.
		return ending{failed: true, reason: "LauncherPodEnded", message: "The launcher pod was ended before the guest ran."}
	}
	e := ending{failed: exit.Reason.Failed(), reason: string(exit.Reason), message: EndMessage(exit.Reason)}
	if e.failed && exit.Message != "" {
		e.message += " QEMU said: " + exit.Message
	}
	return e
}

// EndMessage is the sentence for a reason, in KubeVirt's words where it has
// some.
func EndMessage(reason launch.Reason) string {
	switch reason {
	case launch.ReasonGuestPanicked:
		return "The guest's kernel panicked."
	case launch.ReasonWatchdog:
		return "The guest's watchdog fired."
	case launch.ReasonCrashed:
		return "The VirtualMachineInstance crashed."
	case launch.ReasonInternalError:
		return "An error inside QEMU or KVM stopped the guest, and it could not continue."
	case launch.ReasonStartFailed:
		return "QEMU could not be started."
	case launch.ReasonKilled:
		return "The guest did not shut down within its grace period and was ended by force."
	}
	return "The VirtualMachineInstance was shut down."
}

func finish(status *v1.VirtualMachineInstanceStatus, e ending, now time.Time) {
	phase := v1.Succeeded
	if e.failed {
		phase = v1.Failed
		status.Reason = e.reason
	}
	enter(status, phase, now)
	condition.Drop(&status.Conditions, v1.VirtualMachineInstancePaused)
	condition.Drop(&status.Conditions, v1.VirtualMachineInstanceAgentConnected)
	condition.Set(&status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse,
		Reason: v1.GuestNotRunningReason, Message: e.message,
	}, now)
}

func isFinal(phase v1.VirtualMachineInstancePhase) bool {
	return phase == v1.Succeeded || phase == v1.Failed
}

func enter(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, now time.Time) {
	if status.Phase == phase {
		return
	}
	status.Phase = phase
	status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps, v1.VirtualMachineInstancePhaseTransitionTimestamp{
		Phase: phase, PhaseTransitionTimestamp: second(now),
	})
}

// second is the precision that the API server keeps.
func second(now time.Time) metav1.Time { return metav1.NewTime(now.Truncate(time.Second)) }

// dropOwn drops a condition that the controller sets too, if it is ours, or if
// it is about a start that has meanwhile succeeded.
func dropOwn(status *v1.VirtualMachineInstanceStatus, kind v1.VirtualMachineInstanceConditionType, reason string) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
		return c.Type == kind && (c.Reason == reason || status.Phase == v1.Running)
	})
}

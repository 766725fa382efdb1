package vmistatus

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Reasons of Ready and Synchronized, KubeVirt's where it has some.
const (
	ReasonPVCNotFound  = "FailedPvcNotFound"
	ReasonFailedCreate = "FailedCreate"
	ReasonSyncFailed   = "Synchronizing with the Domain failed."
	ReasonNodeLost     = "NodeLost"               // Kubernetes' reason for the pods of a node that does not answer
	ReasonSandbox      = "FailedCreatePodSandBox" // the kubelet's reason if a pod's network can't be set up
)

const (
	// MessageNotRunning is Ready's message for a guest that will start on its node.
	MessageNotRunning = "Guest VM is not reported as running"
	probeNotPassed    = "ReadinessProbeNotPassed"
)

const reasonCommandsMissing = "CommandsMissing"

const (
	reasonKVM      = "KVM"
	reasonEmulated = "Emulated"
)

// conditionRules are in the order in which conditions are added.
var conditionRules = []struct {
	kind v1.VirtualMachineInstanceConditionType
	of   func(*projection) verdict
}{
	{v1.VirtualMachineInstanceSynchronized, (*projection).synchronized},
	{v1.VirtualMachineInstanceDataVolumesReady, (*projection).dataVolumesReady},
	{v1.VirtualMachineInstanceProvisioning, (*projection).provisioning},
	{PodScheduled, (*projection).podScheduled},
	{v1.VirtualMachineInstanceReady, (*projection).ready},
	{v1.VirtualMachineInstancePaused, (*projection).paused},
	{v1.VirtualMachineInstanceAgentConnected, (*projection).agentConnected},
	{v1.VirtualMachineInstanceUnsupportedAgent, (*projection).agentUnsupported},
	{v1.VirtualMachineInstanceAccessCredentialsSynchronized, (*projection).credentialsSynchronized},
	{v1.VirtualMachineInstanceIsMigratable, (*projection).migratable},
	{v1.VirtualMachineInstanceIsStorageLiveMigratable, (*projection).storageMigratable},
	{Accelerated, (*projection).accelerated},
	{v1.VirtualMachineInstanceMigrationRequired, (*projection).migrationRequired},
	{MigrationProgress, (*projection).migrationProgress},
	{v1.VirtualMachineInstanceVolumesChange, (*projection).volumesChange},
	{v1.VirtualMachineInstanceVCPUChange, func(p *projection) verdict { return changeOf(p.VCPUs) }},
	{v1.VirtualMachineInstanceMemoryChange, func(p *projection) verdict { return changeOf(p.Memory) }},
	{v1.VirtualMachineInstanceEvictionRequested, (*projection).evictionRequested},
}

// Each component only clears its own report.
func (p *projection) synchronized() verdict {
	failure, steps := p.Failure.Get()
	obstacle, known := p.Obstacle.Get()
	_, running := p.Guest.Get()
	said := p.current(v1.VirtualMachineInstanceSynchronized).Reason
	switch {
	case p.End != nil && said == ReasonSyncFailed:
		return absent
	case p.End != nil:
		return unknown
	case failure != "":
		return isFalse(ReasonSyncFailed, failure)
	case obstacle != nil:
		return isFalse(obstacle.Reason, obstacle.Message)
	case known && p.stage == Waiting, known && FromKubelet(said):
		return absent
	case steps && (said == ReasonSyncFailed || running || p.vmi.Status.Phase == v1.Running):
		return absent
	}
	return unknown
}

func (p *projection) dataVolumesReady() verdict {
	dvs, known := p.Wait.DataVolumes.Get()
	switch {
	case !known:
		return unknown
	case !dvs.Exist:
		return absent
	case dvs.Filled:
		return isTrue(v1.VirtualMachineInstanceReasonAllDVsReady, "all of the VMI's DataVolumes are filled")
	}
	return isFalse(v1.VirtualMachineInstanceReasonNotAllDVsReady, dvs.Message)
}

func (p *projection) provisioning() verdict {
	message, known := p.Wait.Provisioning.Get()
	switch {
	case !known:
		return unknown
	case message == "":
		return absent
	}
	return isTrue("", message)
}

func (p *projection) podScheduled() verdict {
	why, known := p.Wait.Unscheduled.Get()
	switch {
	case p.HandOver != nil:
		return absent
	case !known:
		return unknown
	case why == nil:
		return absent
	}
	return isFalse(why.Reason, why.Message)
}

// ready is True only while virt-handler reports a running guest and virt-controller no problem of its pod.
func (p *projection) ready() verdict {
	obstacle, _ := p.Obstacle.Get()
	pod, _ := p.Pod.Get()
	guest, running := p.Guest.Get()
	switch {
	case p.End != nil && p.End.WithoutPod:
		return isFalse(v1.PodNotExistsReason, p.End.Message)
	case p.End != nil:
		return notRunning(p.End.Message)
	case obstacle != nil:
		return notRunning(obstacle.Message)
	case p.HandOver != nil:
		return notRunning(MessageNotRunning)
	case p.stage == Waiting && p.Wait.For != "":
		return notRunning(p.Wait.For)
	case p.stage == Waiting:
		return unknown
	case pod.State != PodThere:
		return pod.ready()
	case running && !Interrupted(p.vmi):
		return guest.ready()
	case p.isReadyOutdated():
		return notRunning(MessageNotRunning)
	}
	return unknown
}

// isReadyOutdated reports whether the container's obstacle is gone, the node answers again, or Ready is about a pod that
// the guest has left.
func (p *projection) isReadyOutdated() bool {
	if p.vmi.Status.Phase != v1.Scheduled {
		return p.Migration.Arrived != nil && Interrupted(p.vmi)
	}
	_, known := p.Obstacle.Get()
	_, seen := p.Pod.Get()
	return known && FromKubelet(p.current(v1.VirtualMachineInstanceSynchronized).Reason) ||
		seen && p.current(v1.VirtualMachineInstanceReady).Reason == ReasonNodeLost
}

func notRunning(message string) verdict { return isFalse(v1.GuestNotRunningReason, message) }

// LastProbeTime is when the pod was found to be gone.
func (pod Pod) ready() verdict {
	silent := fmt.Sprintf("node %s does not answer (%s)", pod.Node, pod.Silent)
	switch {
	case pod.State == PodReportedByController:
		return unknown
	case pod.State == PodSilent:
		return isFalse(ReasonNodeLost, silent+"; how the guest is, is not known")
	case pod.State == PodUnseen:
		return isFalse(ReasonNodeLost, fmt.Sprintf("%s; whether it has started the launcher pod %s is not known; if the node is off, give it the taint %s",
			silent, pod.Name, corev1.TaintNodeOutOfService))
	case pod.State == PodTerminating && pod.Silent != "":
		return is(corev1.ConditionUnknown, v1.PodTerminatingReason,
			fmt.Sprintf("the launcher pod %s is being deleted, and %s; how the guest is, is not known", pod.Name, silent))
	case pod.State == PodTerminating:
		return isFalse(v1.PodTerminatingReason, fmt.Sprintf("the launcher pod %s is being deleted", pod.Name))
	}
	gone := isFalse(v1.PodNotExistsReason, fmt.Sprintf("the launcher pod is gone; its guest is given the time to end on node %s", pod.Node))
	if pod.Silent != "" {
		gone = is(corev1.ConditionUnknown, v1.PodNotExistsReason, fmt.Sprintf(
			"the launcher pod is gone, and %s: whether the guest runs is not known; if the node is off, give it the taint %s",
			silent, corev1.TaintNodeOutOfService))
	}
	gone.want.LastProbeTime = metav1.NewTime(pod.Since.Truncate(time.Second))
	return gone
}

func (g *Guest) ready() verdict {
	switch {
	case !g.RunState.Ready():
		return isFalse(g.RunState.Reason, g.RunState.Message)
	case g.AwaitsProbe:
		return isFalse(probeNotPassed, "The guest runs, and its readiness probe has not succeeded yet.")
	}
	return isTrue("", "")
}

func (p *projection) paused() verdict {
	g, running := p.Guest.Get()
	switch {
	case p.End != nil:
		return absent
	case !running:
		return unknown
	case !g.RunState.Paused:
		return absent
	case g.PausedByUser:
		return isTrue(runstate.ReasonPausedByUser, g.RunState.Message)
	}
	return isTrue(g.RunState.Reason, g.RunState.Message)
}

func (p *projection) agentConnected() verdict {
	g, running := p.Guest.Get()
	switch {
	case p.End != nil:
		return absent
	case !running:
		return unknown
	case !g.AgentConnected:
		return absent
	}
	return isTrue("", "")
}

// It stays after a restart of virt-handler or a migration, until the agent has listed its commands.
func (p *projection) agentUnsupported() verdict {
	g, running := p.Guest.Get()
	lacks, known := g.AgentLacks.Get()
	switch {
	case p.End != nil, running && !g.AgentConnected:
		return absent
	case !known:
		return unknown
	case lacks == "":
		return absent
	}
	return isTrue(reasonCommandsMissing, lacks)
}

// It stays after a restart of virt-handler or a migration, until somebody has tried.
func (p *projection) credentialsSynchronized() verdict {
	g, _ := p.Guest.Get()
	failure, known := g.Credentials.Get()
	switch {
	case p.End != nil:
		return absent
	case !known:
		return unknown
	case failure != "":
		return isFalse(v1.AccessCredentialsSyncFailed.String(), failure)
	}
	return isTrue(v1.AccessCredentialsSyncSuccess.String(), "")
}

func (p *projection) migratable() verdict {
	g, running := p.Guest.Get()
	switch {
	case !running, p.End != nil:
		return unknown
	case g.Immovable != nil:
		return isFalse(g.Immovable.Reason, g.Immovable.Message)
	}
	return isTrue("", "")
}

func (p *projection) storageMigratable() verdict {
	g, running := p.Guest.Get()
	switch {
	case !running, p.End != nil:
		return unknown
	case g.StorageBound != nil:
		return isFalse(g.StorageBound.Reason, g.StorageBound.Message)
	}
	return isTrue("", "")
}

// The next node of a migration must have the same.
func (p *projection) accelerated() verdict {
	g, running := p.Guest.Get()
	switch {
	case !running, p.End != nil:
		return unknown
	case g.Accelerated:
		return isTrue(reasonKVM, "")
	}
	return isFalse(reasonEmulated, "The guest is emulated, and can migrate to nodes that emulate guests only.")
}

// RunsWithKVM reads the condition Accelerated, which is unknown until the guest has been reported.
func RunsWithKVM(vmi *v1.VirtualMachineInstance) (kvm, known bool) {
	c := condition.Find(vmi.Status.Conditions, Accelerated)
	if c == nil {
		return false, false
	}
	return c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionTrue || c.Status == corev1.ConditionFalse
}

// The new pod of an arrived guest decides anew.
func (p *projection) migrationRequired() verdict {
	want, known := p.MigrationRequired.Get()
	switch {
	case p.Migration.Arrived != nil:
		return absent
	case !known:
		return unknown
	case want == nil:
		return absent
	}
	return verdict{known: true, want: want}
}

func changeOf(fact Fact[*Obstacle]) verdict {
	change, known := fact.Get()
	switch {
	case !known:
		return unknown
	case change == nil:
		return absent
	}
	return isTrue(change.Reason, change.Message)
}

// Interrupted reports whether the launcher pod is being deleted or is gone, which can't be undone.
func Interrupted(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && c.Status != corev1.ConditionTrue &&
		(c.Reason == v1.PodTerminatingReason || c.Reason == v1.PodNotExistsReason)
}

// Unanswered reports whether the VMI's node does not answer.
func Unanswered(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && StageOf(vmi.Status.Phase) != Ended && (c.Reason == ReasonNodeLost || c.Status == corev1.ConditionUnknown)
}

// SaysNodeLost reports whether virt-controller has said that the VMI's node does not answer.
func SaysNodeLost(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && c.Reason == ReasonNodeLost
}

// MissedSince returns when the launcher pod was first found to be gone, or now.
func MissedSince(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	if c != nil && c.Reason == v1.PodNotExistsReason && !c.LastProbeTime.IsZero() {
		return c.LastProbeTime.Time
	}
	return now
}

// PhaseSince returns when the VMI reached its phase, or the zero time.
func PhaseSince(vmi *v1.VirtualMachineInstance) time.Time {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == vmi.Status.Phase {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}

// FromKubelet reports whether a pod or container may wait forever for that reason.
func FromKubelet(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError",
		"CreateContainerError", "RunContainerError", "PreCreateHookError", "CrashLoopBackOff",
		"FailedMount", "FailedAttachVolume", "FailedMapVolume", ReasonSandbox:
		return true
	}
	return false
}

func (p *projection) evictionRequested() verdict {
	node := p.next.EvacuationNodeName
	if node == "" || p.stage != HandedOver || p.End != nil {
		return absent
	}
	return isTrue(v1.VirtualMachineInstanceReasonEvictionRequested, fmt.Sprintf("The guest is to leave node %s: its launcher pod was evicted.", node))
}

// Package podresize decides how a launcher pod follows a guest that gets more or less CPUs and memory while it
// runs, and when the guest may take them.
//
// It owns the way of such a change, which the VMI's conditions HotVCPUChange and HotMemoryChange tell of, and the
// order: a guest takes nothing that its pod does not have, and a pod gives back nothing that its guest has. It is pure.
// How much a pod is to have is package launcherpod's to say, how a change gets into the VMI's spec package
// rollout's.
//
//	written by       what
//	virt-controller  spec.domain.cpu.sockets and spec.domain.memory.guest, as the VM's template has them
//	virt-controller  the conditions HotVCPUChange and HotMemoryChange
//	virt-controller  the pod's resources (its subresource resize)
//	the kubelet      the pod's conditions PodResizePending and PodResizeInProgress, and what its container has
//	virt-handler     status.currentCPUTopology: what QEMU has
//	virt-handler     status.memory: what the guest has, and what it is about to be given, or was
//
// The states follow from these, and from nothing that is remembered:
//
//	more:  spec > guest ──> condition ──> pod is asked ──> kubelet: container has it ──> guest has it ──> no condition
//	                                         │ refused (quota)    │ pending (node is full)
//	                                         └── tried again      └── a need for a migration (package migrationrequired)
//	less:  spec < guest ──> condition ──> guest has given back ──> pod is asked ──> container has less ──> no condition
//
// A pod is resized for CPUs and memory at once. Each condition is there while its own part is other than the spec
// says, or the pod has not followed yet.
//
// The condition is written before anything else, and goes last: it says that the pod may have other
// resources than its VMI's. So a change of settings alone resizes no pod, and nothing is left behind if the
// template is changed back in the midst of it.
//
//   - virt-controller dies: the next leader reads the same states, and asks for the same.
//   - virt-handler dies: the next one asks QEMU what it has, and goes on.
//   - the kubelet is away: the container does not have it yet; the guest waits.
//   - the guest migrates meanwhile: nothing changes until it has arrived. The target pod is made with the
//     resources of the spec, or of what the guest has if that is more, its QEMU with what the guest has.
//   - the guest does not give back, or is emulated and can't (decision 396): the condition stays, and the pod keeps what it has.
package podresize

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migrationrequired"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Reasons of the conditions HotVCPUChange and HotMemoryChange.
const (
	// ReasonRefused is of a pod that the API server does not let have more, as a quota asks for.
	ReasonRefused = "PodResizeRefused"
	// ReasonTooSmall is of a pod whose node could not have room for it if it were alone there.
	ReasonTooSmall = "PodResizeExceedsNode"
	// ReasonAsked is of a pod whose node has not said anything yet.
	ReasonAsked = "PodResizeAsked"
	// ReasonGuest is of a guest that is to take what its pod has, or to give back what that is to have no more.
	ReasonGuest = "GuestChanges"
)

// part is one of what changes in a guest.
type part struct {
	condition v1.VirtualMachineInstanceConditionType
	// differs reports whether the guest has another amount than it is to have, and guest says which.
	differs func(*v1.VirtualMachineInstance) bool
	guest   func(*v1.VirtualMachineInstance) string
}

var (
	cpus   = part{v1.VirtualMachineInstanceVCPUChange, otherSockets, saySockets}
	memory = part{v1.VirtualMachineInstanceMemoryChange, otherMemory, sayMemory}
)

// UnderWay reports whether the CPUs or the memory of a VMI's guest are to change, or its pod after them.
func UnderWay(vmi *v1.VirtualMachineInstance) bool { return cpus.underWay(vmi) || memory.underWay(vmi) }

// CPUsAnnounced reports whether the VMI says that its CPUs change: before that nothing changes them.
func CPUsAnnounced(vmi *v1.VirtualMachineInstance) bool { return cpus.announced(vmi) }

// MemoryAnnounced reports whether the VMI says that its memory changes: before that nothing changes it.
func MemoryAnnounced(vmi *v1.VirtualMachineInstance) bool { return memory.announced(vmi) }

func (p part) announced(vmi *v1.VirtualMachineInstance) bool {
	return condition.IsTrue(vmi.Status.Conditions, p.condition)
}

func (p part) underWay(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == v1.Running && p.differs(vmi) || p.announced(vmi)
}

func otherSockets(vmi *v1.VirtualMachineInstance) bool {
	has := vmi.Status.CurrentCPUTopology
	return has != nil && has.Sockets != machine.Topology(&vmi.Spec).Sockets
}

func saySockets(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest has CPUs in %d sockets, and is to have them in %d.", vmi.Status.CurrentCPUTopology.Sockets, machine.Topology(&vmi.Spec).Sockets)
}

// otherMemory looks at what the guest has, and at what it may take at any time.
func otherMemory(vmi *v1.VirtualMachineInstance) bool {
	m, to := vmi.Status.Memory, machine.GuestMemory(&vmi.Spec)
	if m == nil || m.GuestAtBoot == nil || m.GuestCurrent == nil || m.GuestRequested == nil || machine.MemoryRoom(&vmi.Spec, m.GuestAtBoot.Value()) == 0 {
		return false
	}
	return m.GuestCurrent.Value() != to || m.GuestRequested.Value() != to
}

func sayMemory(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest has %s of memory, and is to have %s.", vmi.Status.Memory.GuestCurrent, vmi.Spec.Domain.Memory.Guest)
}

// Plan is what is to be done about a pod, and said of it.
type Plan struct {
	// Resize asks for the resources of the pod.
	Resize bool
	// CPUs and Memory are what the conditions HotVCPUChange and HotMemoryChange say, nil when there is no such change, or
	// it is done.
	CPUs, Memory *vmistatus.Obstacle
	// Needs are what another pod would bring, because the node of this one has no room for it.
	Needs []migrationrequired.Need
}

// Decide decides about the pod of a VMI whose CPUs or memory change. want is what the pod is to have.
func Decide(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, want corev1.ResourceRequirements) Plan {
	spec := container(pod)
	var plan Plan
	var pending func(part) *vmistatus.Obstacle
	switch {
	case spec == nil:
		pending = func(p part) *vmistatus.Obstacle { return p.said(vmi) }
	case !covers(spec.Resources, want, equal):
		pending = func(p part) *vmistatus.Obstacle { return p.asked(vmi, want) }
		plan.Resize, plan.Needs = CPUsAnnounced(vmi) || MemoryAnnounced(vmi), tooSmall(vmi, want)
	case !Granted(Actual(pod), want):
		pending = func(part) *vmistatus.Obstacle { return awaited(pod, want) }
		plan.Needs = needs(pod, want)
	default:
		pending = func(p part) *vmistatus.Obstacle { return p.inGuest(vmi) }
	}
	if cpus.underWay(vmi) {
		plan.CPUs = pending(cpus)
	}
	if memory.underWay(vmi) {
		plan.Memory = pending(memory)
	}
	return plan
}

// inGuest says what the guest has, and is to have; nil when these are the same.
func (p part) inGuest(vmi *v1.VirtualMachineInstance) *vmistatus.Obstacle {
	if !p.differs(vmi) {
		return nil
	}
	return &vmistatus.Obstacle{Reason: ReasonGuest, Message: p.guest(vmi)}
}

// causeNodeCapacity is the API server's cause of a refusal for want of room on the whole node.
const causeNodeCapacity metav1.CauseType = "NodeCapacity"

// Refused is what the conditions of the changes that are under way say of a pod that the API server does not let have
// what is wanted.
func Refused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, cause error) Plan {
	reason := ReasonRefused
	if apierrors.HasStatusCause(cause, causeNodeCapacity) {
		reason = ReasonTooSmall
	}
	says := &vmistatus.Obstacle{Reason: reason, Message: fmt.Sprintf("The launcher pod can't have %s, which is tried again and again: %v", text(want), cause)}
	var plan Plan
	if cpus.underWay(vmi) {
		plan.CPUs = says
	}
	if memory.underWay(vmi) {
		plan.Memory = says
	}
	return plan
}

// said is what the condition says now.
func (p part) said(vmi *v1.VirtualMachineInstance) *vmistatus.Obstacle {
	if c := condition.Find(vmi.Status.Conditions, p.condition); c != nil {
		return &vmistatus.Obstacle{Reason: c.Reason, Message: c.Message}
	}
	return nil
}

// asked is what the condition says of a pod that is asked to have something. That it was refused that is said until
// it is not any more: another attempt is no news.
func (p part) asked(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements) *vmistatus.Obstacle {
	if p.refused(vmi, want, ReasonRefused, ReasonTooSmall) {
		return p.said(vmi)
	}
	return &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + text(want) + "."}
}

// tooSmall are the needs of a pod whose node has no room for that.
func tooSmall(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements) []migrationrequired.Need {
	if !cpus.refused(vmi, want, ReasonTooSmall) && !memory.refused(vmi, want, ReasonTooSmall) {
		return nil
	}
	return []migrationrequired.Need{noRoom(want, true)}
}

// refused reports whether the condition says that the pod was refused just that, for one of the reasons.
func (p part) refused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, reasons ...string) bool {
	now := p.said(vmi)
	return now != nil && slices.Contains(reasons, now.Reason) && strings.Contains(now.Message, text(want))
}

// noRoom is the need for a node that has room for that.
func noRoom(want corev1.ResourceRequirements, atOnce bool) migrationrequired.Need {
	return migrationrequired.Need{What: "the launcher pod is to have " + text(want) + ", for which its node has no room", AtOnce: atOnce}
}

// awaited says what the kubelet makes of a resize.
func awaited(pod *corev1.Pod, want corev1.ResourceRequirements) *vmistatus.Obstacle {
	for _, kind := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		c := podstatus.Condition(pod, kind)
		if c == nil || c.Status != corev1.ConditionTrue || c.Reason == "" {
			continue
		}
		return &vmistatus.Obstacle{Reason: string(kind) + c.Reason, Message: fmt.Sprintf("The launcher pod can't have %s on its node now (%s): %s", text(want), c.Reason, c.Message)}
	}
	return &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The node is giving the launcher pod " + text(want) + "."}
}

// needs are what the kubelet has put off. It may never have room (Infeasible), or may soon.
func needs(pod *corev1.Pod, want corev1.ResourceRequirements) []migrationrequired.Need {
	c := podstatus.Condition(pod, corev1.PodResizePending)
	if c == nil || c.Status != corev1.ConditionTrue {
		return nil
	}
	return []migrationrequired.Need{noRoom(want, c.Reason == corev1.PodReasonInfeasible)}
}

// text names resources.
func text(r corev1.ResourceRequirements) string {
	cpu, memory := r.Requests[corev1.ResourceCPU], r.Requests[corev1.ResourceMemory]
	return fmt.Sprintf("%s CPU and %s of memory", cpu.String(), memory.String())
}

// Actual are the resources that the kubelet says the guest's container has, nil if it does not say.
func Actual(pod *corev1.Pod) *corev1.ResourceRequirements {
	if c := podstatus.Container(pod, layout.ComputeContainer); c != nil {
		return c.Resources
	}
	return nil
}

// Granted reports whether a container has what it is to have, or more.
func Granted(has *corev1.ResourceRequirements, want corev1.ResourceRequirements) bool {
	return has != nil && covers(*has, want, func(has, want resource.Quantity) bool { return has.Cmp(want) >= 0 })
}

// Has are the resources that the guest's container is asked to have, nil for a pod without it.
func Has(pod *corev1.Pod) *corev1.ResourceRequirements {
	if c := container(pod); c != nil {
		return &c.Resources
	}
	return nil
}

func equal(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }

// covers reports whether each resource that is wanted is there in such an amount. A limit that nobody wants,
// such as one from a limit range, is none of ours.
func covers(has, want corev1.ResourceRequirements, enough func(has, want resource.Quantity) bool) bool {
	for _, list := range []struct{ has, want corev1.ResourceList }{{has.Requests, want.Requests}, {has.Limits, want.Limits}} {
		for name, wanted := range list.want {
			if is, there := list.has[name]; !there || !enough(is, wanted) {
				return false
			}
		}
	}
	return true
}

func container(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			return c
		}
	}
	return nil
}

// Patch is the strategic merge patch of the pod's subresource resize. It applies to the very pod.
func Patch(pod *corev1.Pod, want corev1.ResourceRequirements) ([]byte, error) {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"containers": []map[string]any{{"name": layout.ComputeContainer, "resources": want}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the resources of the pod %s: %w", pod.Name, err)
	}
	return data, nil
}

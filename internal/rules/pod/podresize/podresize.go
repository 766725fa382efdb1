// Package podresize decides how a launcher pod follows a guest whose CPUs and memory change while it runs, and when the
// guest may take them.
//
// It owns the progress of such a change, in the VMI's conditions HotVCPUChange and HotMemoryChange, and the order: a
// guest takes nothing that its pod does not have, and a pod gives up nothing that its guest has. It must not import a
// client. Package launcherpod calculates the pod's resources; package rollout brings a change into the VMI's spec.
//
//	written by       fields
//	virt-controller  spec.domain.cpu.sockets and spec.domain.memory.guest, from the VM's template
//	virt-controller  the conditions HotVCPUChange and HotMemoryChange
//	virt-controller  the pod's resources (its subresource resize)
//	the kubelet      the pod's conditions PodResizePending and PodResizeInProgress, and the actual resources
//	                 of its container
//	virt-handler     status.currentCPUTopology: QEMU's CPUs
//	virt-handler     status.memory: the guest's memory, and the amount that it is about to get or give back
//
// The states follow from these fields alone:
//
//	more:  spec > guest ──> condition ──> resize ──> container has it ──> guest has it ──> no condition
//	                                        │ refused (quota)  │ pending (node is full)
//	                                        └── retried        └── a need for a migration (package migrationrequired)
//	less:  spec < guest ──> condition ──> guest has given back ──> resize ──> container has less ──> no condition
//
// One resize covers CPUs and memory. Each condition exists while its own part differs from the spec, or the pod has not
// followed yet. It is written before anything else and removed last, and means that the pod may have other resources
// than its VMI's: a change of settings alone resizes no pod, and a template that is changed back leaves nothing behind.
//
//   - virt-controller crashes: the next leader reads the same states, and requests the same resize.
//   - virt-handler crashes: the next one asks QEMU, and continues.
//   - the kubelet is away: the guest waits.
//   - the guest is migrating: nothing changes until it has arrived. The target pod is created with the
//     larger of the spec's and the guest's resources, its QEMU with the guest's.
//   - the guest does not give back, or is emulated and can't (decision 396): the condition and the pod's resources stay.
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
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const (
	// ReasonRefused means that the API server refuses the resize, for example because of a quota.
	ReasonRefused = "PodResizeRefused"
	// ReasonTooSmall means that the node could not fit the pod even if it were alone there.
	ReasonTooSmall = "PodResizeExceedsNode"
	// ReasonAsked means that the node has not answered.
	ReasonAsked = "PodResizeAsked"
	// ReasonGuest means that the guest has yet to take its pod's resources, or to give back those that the pod loses.
	ReasonGuest = "GuestChanges"
)

type part struct {
	condition v1.VirtualMachineInstanceConditionType
	// differs reports whether the guest's amount differs from the spec's; guest describes both.
	differs func(*v1.VirtualMachineInstance) bool
	guest   func(*v1.VirtualMachineInstance) string
}

var (
	cpus   = part{v1.VirtualMachineInstanceVCPUChange, otherSockets, socketsMessage}
	memory = part{v1.VirtualMachineInstanceMemoryChange, otherMemory, memoryMessage}
)

// UnderWay reports whether the CPUs or memory of a VMI's guest, or its pod's, are changing.
func UnderWay(vmi *v1.VirtualMachineInstance) bool { return cpus.underWay(vmi) || memory.underWay(vmi) }

// CPUsAnnounced reports whether the VMI has the condition without which nothing changes its CPUs.
func CPUsAnnounced(vmi *v1.VirtualMachineInstance) bool { return cpus.announced(vmi) }

// MemoryAnnounced reports whether the VMI has the condition without which nothing changes its memory.
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

func socketsMessage(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest has CPUs in %d sockets, and is to have them in %d.", vmi.Status.CurrentCPUTopology.Sockets, machine.Topology(&vmi.Spec).Sockets)
}

// otherMemory considers the guest's memory, and the amount that it may take at any time.
func otherMemory(vmi *v1.VirtualMachineInstance) bool {
	m, to := vmi.Status.Memory, machine.GuestMemory(&vmi.Spec)
	if m == nil || m.GuestAtBoot == nil || m.GuestCurrent == nil || m.GuestRequested == nil || machine.MemoryRoom(&vmi.Spec, m.GuestAtBoot.Value()) == 0 {
		return false
	}
	return m.GuestCurrent.Value() != to || m.GuestRequested.Value() != to
}

func memoryMessage(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest has %s of memory, and is to have %s.", vmi.Status.Memory.GuestCurrent, vmi.Spec.Domain.Memory.Guest)
}

// Plan is the actions on a pod and the conditions about it.
type Plan struct {
	// Resize requests the pod's resize.
	Resize bool
	// CPUs and Memory are the contents of the conditions, nil without such a change or after it.
	CPUs, Memory *vmistatus.Obstacle
	// Needs are for another pod: the node has no room.
	Needs []migrationrequired.Need
}

// Decide plans for the pod of a VMI whose CPUs or memory change. want is the pod's desired resources.
func Decide(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, want corev1.ResourceRequirements) Plan {
	spec := container(pod)
	var plan Plan
	var pending func(part) *vmistatus.Obstacle
	switch {
	case spec == nil:
		pending = func(p part) *vmistatus.Obstacle { return p.currentCondition(vmi) }
	case !covers(spec.Resources, want, equal):
		pending = func(p part) *vmistatus.Obstacle {
			// A refusal of the same request stays: another attempt is no news.
			if p.refused(vmi, want, ReasonRefused, ReasonTooSmall) {
				return p.currentCondition(vmi)
			}
			return &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + text(want) + "."}
		}
		plan.Resize = CPUsAnnounced(vmi) || MemoryAnnounced(vmi)
		if cpus.refused(vmi, want, ReasonTooSmall) || memory.refused(vmi, want, ReasonTooSmall) {
			plan.Needs = []migrationrequired.Need{noRoom(want, true)}
		}
	case !Granted(Actual(pod), want):
		pending = func(part) *vmistatus.Obstacle { return awaited(pod, want) }
		// The kubelet has deferred the resize: it may never have room (Infeasible), or may soon.
		if c := podstatus.Condition(pod, corev1.PodResizePending); c != nil && c.Status == corev1.ConditionTrue {
			plan.Needs = []migrationrequired.Need{noRoom(want, c.Reason == corev1.PodReasonInfeasible)}
		}
	default:
		pending = func(p part) *vmistatus.Obstacle {
			if !p.differs(vmi) {
				return nil
			}
			return &vmistatus.Obstacle{Reason: ReasonGuest, Message: p.guest(vmi)}
		}
	}
	if cpus.underWay(vmi) {
		plan.CPUs = pending(cpus)
	}
	if memory.underWay(vmi) {
		plan.Memory = pending(memory)
	}
	return plan
}

// causeNodeCapacity is the API server's cause of a refusal because the whole node is too small.
const causeNodeCapacity metav1.CauseType = "NodeCapacity"

// Refused returns the conditions of the current changes after the API server has refused the resize.
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

func (p part) currentCondition(vmi *v1.VirtualMachineInstance) *vmistatus.Obstacle {
	if c := condition.Find(vmi.Status.Conditions, p.condition); c != nil {
		return &vmistatus.Obstacle{Reason: c.Reason, Message: c.Message}
	}
	return nil
}

// refused reports whether the condition has the refusal of exactly this request, for one of the reasons.
func (p part) refused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, reasons ...string) bool {
	now := p.currentCondition(vmi)
	return now != nil && slices.Contains(reasons, now.Reason) && strings.Contains(now.Message, text(want))
}

func noRoom(want corev1.ResourceRequirements, atOnce bool) migrationrequired.Need {
	return migrationrequired.Need{What: "the launcher pod is to have " + text(want) + ", for which its node has no room", AtOnce: atOnce}
}

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

func text(r corev1.ResourceRequirements) string {
	cpu, memory := r.Requests[corev1.ResourceCPU], r.Requests[corev1.ResourceMemory]
	return fmt.Sprintf("%s CPU and %s of memory", cpu.String(), memory.String())
}

// Actual returns the actual resources of the guest's container by the kubelet, nil if unknown.
func Actual(pod *corev1.Pod) *corev1.ResourceRequirements {
	if c := podstatus.Container(pod, layout.ComputeContainer); c != nil {
		return c.Resources
	}
	return nil
}

// Granted reports whether a container has at least the wanted resources.
func Granted(has *corev1.ResourceRequirements, want corev1.ResourceRequirements) bool {
	return has != nil && covers(*has, want, func(has, want resource.Quantity) bool { return has.Cmp(want) >= 0 })
}

// Has returns the requested resources of the guest's container, nil for a pod without it.
func Has(pod *corev1.Pod) *corev1.ResourceRequirements {
	if c := container(pod); c != nil {
		return &c.Resources
	}
	return nil
}

func equal(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }

// covers reports whether every wanted resource is enough. It ignores an unwanted limit, such as a limit range's.
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

// Patch returns the strategic merge patch of the pod's subresource resize, for the pod of this UID only.
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

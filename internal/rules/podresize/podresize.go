// Package podresize decides how a launcher pod follows a guest that gets more or fewer CPUs while it
// runs, and when the guest may take them.
//
// It owns the way of such a change, which the VMI's condition HotVCPUChange tells of, and the order: a guest
// takes nothing that its pod does not have, and a pod gives back nothing that its guest has. It is pure. How
// much a pod is to have is package launcherpod's to say, how a change gets into the VMI's spec package
// rollout's.
//
//	written by       what
//	virt-controller  spec.domain.cpu.sockets, as the VM's template has it
//	virt-controller  the condition HotVCPUChange
//	virt-controller  the pod's resources (its subresource resize)
//	the kubelet      the pod's conditions PodResizePending and PodResizeInProgress, and what its container has
//	virt-handler     status.currentCPUTopology: what QEMU has
//
// The states follow from these, and from nothing that is remembered:
//
//	more:   spec > guest ──> condition ──> pod is asked ──> kubelet: container has it ──> guest has it ──> no condition
//	                                          │ refused (quota)    │ pending (node is full)
//	                                          └── tried again      └── a need for a migration (package migrationrequired)
//	fewer:  spec < guest ──> condition ──> guest has given back ──> pod is asked ──> container has less ──> no condition
//
// The condition is written before anything else, and goes last: it says that the pod may have other
// resources than its VMI's. So a change of settings alone resizes no pod, and nothing is left behind if the
// template is changed back in the midst of it.
//
//   - virt-controller dies: the next leader reads the same states, and asks for the same.
//   - virt-handler dies: the next one asks QEMU what it has, and goes on.
//   - the kubelet is away: the container does not have it yet; the guest waits.
//   - the guest migrates meanwhile: nothing changes until it has arrived. The target pod is made with the
//     resources of the spec, its QEMU with the CPUs that the guest has.
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

// Reasons of the condition HotVCPUChange.
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

// UnderWay reports whether the CPUs of a VMI's guest are to change, or its pod after them.
func UnderWay(vmi *v1.VirtualMachineInstance) bool {
	return differ(vmi) || Announced(vmi)
}

// Announced reports whether the VMI says that its CPUs change: before that nothing changes them.
func Announced(vmi *v1.VirtualMachineInstance) bool {
	return condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceVCPUChange)
}

// differ reports whether the guest has other CPUs than it is to have.
func differ(vmi *v1.VirtualMachineInstance) bool {
	has := vmi.Status.CurrentCPUTopology
	return vmi.Status.Phase == v1.Running && has != nil && has.Sockets != machine.Topology(&vmi.Spec).Sockets
}

// Plan is what is to be done about a pod, and said of it.
type Plan struct {
	// Resize asks for the resources of the pod.
	Resize bool
	// Change is what the condition HotVCPUChange says, nil when the change is done.
	Change *vmistatus.Obstacle
	// Needs are what another pod would bring, because the node of this one has no room for it.
	Needs []migrationrequired.Need
}

// Decide decides about the pod of a VMI whose CPUs change. want is what the pod is to have.
func Decide(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, want corev1.ResourceRequirements) Plan {
	spec := container(pod)
	switch {
	case spec == nil:
		return Plan{Change: said(vmi)}
	case !covers(spec.Resources, want, equal):
		return Plan{Resize: Announced(vmi), Change: asked(vmi, want), Needs: tooSmall(vmi, want)}
	case !Granted(Actual(pod), want):
		return Plan{Change: awaited(pod, want), Needs: needs(pod, want)}
	case differ(vmi):
		return Plan{Change: guest(vmi)}
	}
	return Plan{}
}

// causeNodeCapacity is the API server's cause of a refusal for want of room on the whole node.
const causeNodeCapacity metav1.CauseType = "NodeCapacity"

// Refused is what the condition says of a pod that the API server does not let have what is wanted.
func Refused(want corev1.ResourceRequirements, cause error) *vmistatus.Obstacle {
	reason := ReasonRefused
	if apierrors.HasStatusCause(cause, causeNodeCapacity) {
		reason = ReasonTooSmall
	}
	return &vmistatus.Obstacle{Reason: reason, Message: fmt.Sprintf("The launcher pod can't have %s, which is tried again and again: %v", text(want), cause)}
}

// said is what the condition says now.
func said(vmi *v1.VirtualMachineInstance) *vmistatus.Obstacle {
	if c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceVCPUChange); c != nil {
		return &vmistatus.Obstacle{Reason: c.Reason, Message: c.Message}
	}
	return nil
}

// asked is what the condition says of a pod that is asked to have something. That it was refused that is said until
// it is not any more: another attempt is no news.
func asked(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements) *vmistatus.Obstacle {
	if refused(vmi, want, ReasonRefused, ReasonTooSmall) {
		return said(vmi)
	}
	return &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + text(want) + "."}
}

// tooSmall are the needs of a pod whose node has no room for that.
func tooSmall(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements) []migrationrequired.Need {
	if !refused(vmi, want, ReasonTooSmall) {
		return nil
	}
	return []migrationrequired.Need{noRoom(want, true)}
}

// refused reports whether the condition says that the pod was refused just that, for one of the reasons.
func refused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, reasons ...string) bool {
	now := said(vmi)
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

// guest says what the guest has, and is to have.
func guest(vmi *v1.VirtualMachineInstance) *vmistatus.Obstacle {
	return &vmistatus.Obstacle{Reason: ReasonGuest, Message: fmt.Sprintf("The guest has CPUs in %d sockets, and is to have them in %d.",
		vmi.Status.CurrentCPUTopology.Sockets, machine.Topology(&vmi.Spec).Sockets)}
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

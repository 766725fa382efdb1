package vmicontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// CreateFailed returns the VMI with the error for the creation of its launcher pod, or of an object that it needs.
func CreateFailed(vmi *v1.VirtualMachineInstance, what string, err error, now time.Time) *v1.VirtualMachineInstance {
	failed := &vmistatus.Obstacle{Reason: vmistatus.ReasonFailedCreate, Message: "failed to create " + what + ": " + err.Error()}
	out := withoutItsSpec(vmi)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{
		Now: now, Obstacle: vmistatus.Known(failed), Wait: vmistatus.Wait{Phase: firstPhase(vmi)},
	})
	return out
}

func firstPhase(vmi *v1.VirtualMachineInstance) v1.VirtualMachineInstancePhase {
	if vmi.Status.Phase == v1.VmPhaseUnset {
		return v1.Pending
	}
	return ""
}

// A node may prepare a pod for preparationPatience before the pod's events are read, every preparationInterval. Only
// events report a volume that can't be mounted or a network that can't be set up, and a watch of all events of a cluster
// would cost more than the controller's other work.
const (
	preparationPatience = 10 * time.Second
	preparationInterval = 20 * time.Second
)

// isBeingPrepared reports whether the node still prepares the pod.
func isBeingPrepared(pod *corev1.Pod) bool {
	return podstatus.BeingPrepared(pod, layout.ComputeContainer)
}

func (d *decision) reportPreparation() {
	o := &d.o
	if left := vmistatus.PhaseSince(o.VMI).Add(preparationPatience).Sub(o.Now); left > 0 {
		d.p.After = left
		return
	}
	if !o.WarningAsked {
		d.p.Needs = NeedWarning
		return
	}
	d.p.After = preparationInterval
	if o.Warning != nil && vmistatus.FromKubelet(o.Warning.Reason) {
		d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: o.Warning.Reason, Message: o.Warning.Message})
		return
	}
	// A kubelet that is cut off may have started an unknown container, so the VMI waits as for a running guest.
	if !o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	pod := d.podFact(vmistatus.PodThere)
	if placement.NodeLost(o.Node, o.Now) {
		_, pod.Silent = nodeReady(o.Node)
		pod.State = vmistatus.PodUnseen
	}
	d.facts.Pod = vmistatus.Known(pod)
}

func (d *decision) podFact(state vmistatus.PodState) vmistatus.Pod {
	out := vmistatus.Pod{State: state, Node: d.o.VMI.Status.NodeName}
	if d.o.Pod != nil {
		out.Name = d.o.Pod.Name
	}
	return out
}

// virt-handler reports nothing until virt-launcher runs.
func containerObstacle(pod *corev1.Pod) vmistatus.Fact[*vmistatus.Obstacle] {
	waiting := podstatus.Waiting(pod, layout.ComputeContainer)
	switch {
	case podstatus.Container(pod, layout.ComputeContainer) == nil:
		return vmistatus.Fact[*vmistatus.Obstacle]{}
	case waiting == nil:
		return none
	case !vmistatus.FromKubelet(waiting.Reason):
		return vmistatus.Fact[*vmistatus.Obstacle]{}
	}
	message := waiting.Message
	if message == "" {
		message = "the launcher's container waits: " + waiting.Reason
	}
	return vmistatus.Known(&vmistatus.Obstacle{Reason: waiting.Reason, Message: message})
}

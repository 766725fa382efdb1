package vmilifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// CreateFailed notes on the VMI that its launcher pod, or what that needs first, could not be created, in
// the API server's words.
func CreateFailed(vmi *v1.VirtualMachineInstance, what string, err error, now time.Time) *v1.VirtualMachineInstance {
	failed := &vmistatus.Obstacle{Reason: vmistatus.ReasonFailedCreate, Message: "failed to create " + what + ": " + err.Error()}
	out := withoutItsSpec(vmi)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{
		Now: now, Obstacle: vmistatus.Known(failed), Wait: vmistatus.Wait{Phase: firstPhase(vmi)},
	})
	return out
}

// firstPhase is the phase that a VMI enters which has none, "" for another.
func firstPhase(vmi *v1.VirtualMachineInstance) v1.VirtualMachineInstancePhase {
	if vmi.Status.Phase == v1.VmPhaseUnset {
		return v1.Pending
	}
	return ""
}

// preparationPatience is how long a node may take to prepare a pod before its
// events are asked for a reason, and preparationInterval how often they are
// asked then. Only events tell of a volume that can't be mounted or a network
// that can't be made; following all of a cluster's events would cost more
// than all else that the controller does.
const (
	preparationPatience = 10 * time.Second
	preparationInterval = 20 * time.Second
)

// beingMade reports whether the node still prepares the pod's volumes, network
// and container.
func beingMade(pod *corev1.Pod) bool {
	status := computeStatus(pod)
	return status == nil || status.State.Waiting != nil && status.State.Waiting.Reason == "ContainerCreating"
}

// reportPreparation says why a pod that has its node takes so long.
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
	d.reportUnprepared()
}

// reportUnprepared says that the node which is to prepare the pod, and has complained
// about nothing, does not answer; and takes that back. That the API server knows of no
// container does not mean that there is none: a kubelet that is cut off may have
// started it. So the VMI waits as for a guest that runs.
func (d *decision) reportUnprepared() {
	if !d.o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	pod := d.pod(vmistatus.PodThere)
	if placement.NodeLost(d.o.Node, d.o.Now) {
		_, pod.Silent = nodeReady(d.o.Node)
		pod.State = vmistatus.PodUnseen
	}
	d.facts.Pod = vmistatus.Known(pod)
}

// pod is the launcher pod in a state.
func (d *decision) pod(state vmistatus.PodState) vmistatus.Pod {
	out := vmistatus.Pod{State: state, Node: d.o.VMI.Status.NodeName}
	if d.o.Pod != nil {
		out.Name = d.o.Pod.Name
	}
	return out
}

// containerObstacle is why the launcher's container does not start, in the kubelet's
// words. virt-handler has nothing to say as long as virt-launcher does not run.
func containerObstacle(pod *corev1.Pod) vmistatus.Fact[*vmistatus.Obstacle] {
	status := computeStatus(pod)
	switch {
	case status == nil:
		return vmistatus.Fact[*vmistatus.Obstacle]{}
	case status.State.Waiting == nil:
		return none
	case !vmistatus.FromKubelet(status.State.Waiting.Reason):
		return vmistatus.Fact[*vmistatus.Obstacle]{}
	}
	waiting := status.State.Waiting
	message := waiting.Message
	if message == "" {
		message = "the launcher's container waits: " + waiting.Reason
	}
	return vmistatus.Known(&vmistatus.Obstacle{Reason: waiting.Reason, Message: message})
}

func computeStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	return podstatus.Container(pod, layout.ComputeContainer)
}

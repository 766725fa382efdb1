package vmilife

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/layout"
	"drydock.dev/drydock/internal/placement"
)

// Reasons of the condition Synchronized, as KubeVirt's users know them.
const (
	ReasonPVCNotFound  = "FailedPvcNotFound"
	ReasonFailedCreate = "FailedCreate"
)

// What the condition Ready says while the guest is not there yet.
const (
	guestNotRunning = "Guest VM is not reported as running"
	waitingForNode  = "waiting for a node for the launcher pod"
)

func notReady(message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse,
		Reason: v1.GuestNotRunningReason, Message: message,
	}
}

func notSynchronized(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse,
		Reason: reason, Message: message,
	}
}

// CreateFailed notes on the VMI that its launcher pod could not be created, in
// the API server's words.
func CreateFailed(vmi *v1.VirtualMachineInstance, err error, now time.Time) *v1.VirtualMachineInstance {
	out := withoutItsSpec(vmi)
	if out.Status.Phase == v1.VmPhaseUnset {
		setPhase(out, v1.Pending, now)
	}
	failed := notSynchronized(ReasonFailedCreate, "failed to create the launcher pod: "+err.Error())
	condition.Set(&out.Status.Conditions, failed, now)
	condition.Set(&out.Status.Conditions, notReady(failed.Message), now)
	return out
}

// reportScheduling says on the VMI what the scheduler says about its launcher pod.
func reportScheduling(vmi *v1.VirtualMachineInstance, o Observed) {
	message := waitingForNode
	if reportVerdict(vmi, o.Pod, o) {
		if pending := placement.Unbound(o.Claims); len(pending) > 0 {
			message += "; these claims are not bound yet: " + strings.Join(pending, ", ")
		}
	}
	condition.Set(&vmi.Status.Conditions, notReady(message), o.Now)
}

// reportVerdict passes on why the scheduler finds no node for a pod of the VMI's,
// and tells whether it said so.
func reportVerdict(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, o Observed) bool {
	verdict := podCondition(pod, corev1.PodScheduled)
	if verdict == nil || verdict.Status != corev1.ConditionFalse {
		condition.Drop(&vmi.Status.Conditions, scheduledCondition)
		return false
	}
	message := verdict.Message
	if strings.Contains(message, layout.ResourceKVM) {
		message += kvmHint
	}
	condition.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: scheduledCondition, Status: corev1.ConditionFalse, Reason: verdict.Reason, Message: message,
	}, o.Now)
	return true
}

// kvmHint goes with the scheduler's word that nodes lack KVM's device: on its own it
// reads as if they were full.
const kvmHint = " (a node offers " + layout.ResourceKVM + " when its KVM has run a guest, see the node's label " + layout.KVMLabel +
	" and its events; with developerConfiguration.useEmulation in the KubeVirt object guests are emulated where it has not)"

// preparationPatience is how long a node may take to prepare a pod before its
// events are asked for a reason, and preparationInterval how often they are
// asked then. Only events tell of a volume that can't be mounted or a network
// that can't be made; following all of a cluster's events would cost more
// than all else that the controller does.
const (
	preparationPatience = 10 * time.Second
	preparationInterval = 20 * time.Second
)

// beingMade tells whether the node still prepares the pod's volumes, network
// and container.
func beingMade(pod *corev1.Pod) bool {
	status := computeStatus(pod)
	return status == nil || status.State.Waiting != nil && status.State.Waiting.Reason == "ContainerCreating"
}

// reportPreparation says why a pod that has its node takes so long.
func reportPreparation(p *Plan, o Observed) {
	if left := phaseSince(o.VMI).Add(preparationPatience).Sub(o.Now); left > 0 {
		p.After = left
		return
	}
	if !o.WarningAsked {
		p.AskForWarning = true
		return
	}
	p.After = preparationInterval
	if o.Warning == nil || !fromKubelet(o.Warning.Reason) {
		reportUnprepared(p, o)
		return
	}
	told := condition.Find(p.VMI.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if told != nil && told.Reason == o.Warning.Reason && told.Reason == reasonSandbox {
		// It names another sandbox at every attempt.
		return
	}
	condition.Set(&p.VMI.Status.Conditions, notSynchronized(o.Warning.Reason, o.Warning.Message), o.Now)
	condition.Set(&p.VMI.Status.Conditions, notReady(o.Warning.Message), o.Now)
}

// reasonSandbox is the kubelet's for a pod whose network can't be made.
const reasonSandbox = "FailedCreatePodSandBox"

// reportContainer says on the VMI why its container does not start, in the
// kubelet's words, and takes it back when it does. virt-handler has nothing to
// say as long as virt-launcher does not run.
func reportContainer(vmi *v1.VirtualMachineInstance, o Observed) {
	status := computeStatus(o.Pod)
	if status == nil || status.State.Waiting == nil {
		current := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		if status != nil && current != nil && fromKubelet(current.Reason) {
			condition.Drop(&vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
			condition.Set(&vmi.Status.Conditions, notReady(guestNotRunning), o.Now)
		}
		return
	}
	waiting := status.State.Waiting
	if !fromKubelet(waiting.Reason) {
		return
	}
	message := waiting.Message
	if message == "" {
		message = "the launcher's container waits: " + waiting.Reason
	}
	condition.Set(&vmi.Status.Conditions, notSynchronized(waiting.Reason, message), o.Now)
	condition.Set(&vmi.Status.Conditions, notReady(message), o.Now)
}

// fromKubelet tells the reasons with which a container or a pod waits for
// something that may never come.
func fromKubelet(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError",
		"CreateContainerError", "RunContainerError", "PreCreateHookError",
		"FailedMount", "FailedAttachVolume", "FailedMapVolume", reasonSandbox:
		return true
	}
	return false
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

package vmistatus

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Reasons of an unwanted end of a VMI, besides ReasonPodEnded.
const (
	ReasonEvicted       = "Evicted"
	ReasonNodeShutdown  = "NodeShutdown"
	ReasonLivenessProbe = "LivenessProbe"
)

// Disruption is the reason for the end of a launcher pod. The zero value means that nobody deleted it.
type Disruption struct {
	Reason string
	// Message is Kubernetes' message, empty for none.
	Message string
}

// kubeletShutdown is the pod's status.reason when its node is shut down.
const kubeletShutdown = "Terminated"

// DisruptionOf returns why a pod is ended. An eviction sets the condition before the pod is
// deleted. A pod that the kubelet ends is not deleted.
func DisruptionOf(pod *corev1.Pod) Disruption {
	target := podstatus.Condition(pod, corev1.DisruptionTarget)
	switch {
	case target != nil && target.Status == corev1.ConditionTrue && target.Reason == corev1.PodReasonTerminationByKubelet && pod.Status.Reason == kubeletShutdown:
		return Disruption{ReasonNodeShutdown, target.Message}
	case target != nil && target.Status == corev1.ConditionTrue:
		return Disruption{ReasonEvicted, target.Message}
	case pod.DeletionTimestamp != nil:
		return Disruption{Reason: ReasonPodEnded}
	}
	return Disruption{}
}

var disruptions = map[string]string{
	ReasonPodEnded:      "The launcher pod was ended",
	ReasonEvicted:       "The launcher pod was evicted",
	ReasonNodeShutdown:  "The node was shut down",
	ReasonLivenessProbe: "The liveness probe failed",
}

// endOfDisruption returns the end of a VMI whose guest was ended from outside, gracefully or by
// force, although the VMI was to stay. If nobody deleted the pod, its liveness probe ended it.
func endOfDisruption(vmi *v1.VirtualMachineInstance, how launch.Reason, by Disruption) *End {
	switch {
	case by.Reason == "" && vmi.Spec.LivenessProbe != nil:
		by.Reason = ReasonLivenessProbe
	case by.Reason == "":
		by.Reason = ReasonPodEnded
	}
	e := &End{Failed: true, Reason: by.Reason, Message: disruptions[by.Reason]}
	switch {
	case vmi.Status.Phase != v1.Running:
		e.Message += " before the guest ran."
	case how == launch.ReasonKilled:
		e.Message += ", and the guest, which did not shut down within its grace period, was ended by force."
	default:
		e.Message += ", and the guest was shut down."
	}
	if by.Message != "" {
		e.Message += " Kubernetes said: " + by.Message
	}
	return e
}

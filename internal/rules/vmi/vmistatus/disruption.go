package vmistatus

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Reasons of an unwanted end, besides ReasonPodEnded.
const (
	ReasonEvicted       = "Evicted"
	ReasonNodeShutdown  = "NodeShutdown"
	ReasonLivenessProbe = "LivenessProbe"
)

// Disruption is why a launcher pod ends. The zero value means that nobody deleted it.
type Disruption struct {
	Reason  string
	Message string
}

// The kubelet's texts for its node's shutdown. A failed pod has both. If the guest has shut down in time, virt-launcher
// succeeds, and only the condition has the message.
const (
	shutdownReason  = "Terminated"
	shutdownMessage = "Pod was terminated in response to imminent node shutdown."
)

// DisruptionOf returns why a pod is ended. An eviction sets the condition before the deletion. The kubelet deletes no
// pod that it ends, and sets the condition only when its containers have ended.
func DisruptionOf(pod *corev1.Pod) Disruption {
	target := podstatus.Condition(pod, corev1.DisruptionTarget)
	switch {
	case target != nil && target.Status == corev1.ConditionTrue && target.Reason == corev1.PodReasonTerminationByKubelet &&
		(pod.Status.Reason == shutdownReason || target.Message == shutdownMessage):
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

// Unexplained reports whether a guest was ended from outside although nobody has deleted the pod: only the kubelet's
// report of the pod's end has the reason.
func Unexplained(vmi *v1.VirtualMachineInstance, exit launch.Exit, by Disruption) bool {
	return unwanted(vmi, exit) && by.Reason == ""
}

// unwanted reports whether a guest was ended from outside although nobody has deleted its VMI.
func unwanted(vmi *v1.VirtualMachineInstance, exit launch.Exit) bool {
	outside := exit.Reason == launch.ReasonHostShutdown || exit.Reason == launch.ReasonKilled
	return outside && StageOf(vmi.Status.Phase) != Ended && vmi.DeletionTimestamp == nil
}

// If nobody deleted the pod, its liveness probe ended it.
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

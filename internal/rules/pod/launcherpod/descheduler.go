package launcherpod

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// These annotations are the descheduler's contract for long evictions. It reads only their presence.
const (
	// EvictOnlyAnnotation says that a refused eviction of the pod may have begun.
	EvictOnlyAnnotation = "descheduler.alpha.kubernetes.io/request-evict-only"
	// EvictionInProgressAnnotation keeps the descheduler from evicting another pod instead.
	EvictionInProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// EvictionMark reports whether a guest's pod must have EvictionInProgressAnnotation, and whether that differs. The pod
// has it while the guest must leave the node: a failed migration is followed by another one.
func EvictionMark(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (mark, differs bool) {
	if pod == nil || pod.DeletionTimestamp != nil || podstatus.Terminal(pod) {
		return false, false
	}
	node := vmi.Status.NodeName
	mark = node != "" && vmi.Status.EvacuationNodeName == node && pod.Spec.NodeName == node
	_, marked := pod.Annotations[EvictionInProgressAnnotation]
	return mark, mark != marked
}

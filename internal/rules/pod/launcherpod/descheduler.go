package launcherpod

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// These annotations are the descheduler's contract for evictions that take long. It reads only their presence.
const (
	// EvictOnlyAnnotation says that an eviction of the pod may be refused and begun all the same.
	EvictOnlyAnnotation = "descheduler.alpha.kubernetes.io/request-evict-only"
	// EvictionInProgressAnnotation says that it has begun, so that the descheduler evicts no other pod instead.
	EvictionInProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// EvictionMark reports whether a guest's pod must get or lose EvictionInProgressAnnotation, and which of the two. The
// pod has it while the guest must leave the pod's node: a failed migration is followed by another one.
func EvictionMark(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (mark, differs bool) {
	if pod == nil || pod.DeletionTimestamp != nil || podstatus.Terminal(pod) {
		return false, false
	}
	node := vmi.Status.NodeName
	mark = node != "" && vmi.Status.EvacuationNodeName == node && pod.Spec.NodeName == node
	_, marked := pod.Annotations[EvictionInProgressAnnotation]
	return mark, mark != marked
}

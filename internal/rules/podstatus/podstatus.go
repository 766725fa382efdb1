// Package podstatus answers questions about any pod's status.
//
// It owns how a container's status and a condition are found, and what a pod's phase means
// to whoever waits for its end. It is pure, and must
// not know what a pod is for: what the end of a launcher pod means is package vmilifecycle's.
package podstatus

import corev1 "k8s.io/api/core/v1"

// Container returns the status of the pod's container of a name, nil when it is not
// known yet.
func Container(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// Condition returns the pod's condition of a type, nil when it has none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// BeingScheduled reports whether the scheduler has yet to say whether it has a node for the pod. A pod that it has chosen a
// node for and does not find any more is a failure to it, of which it warns in an event.
func BeingScheduled(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !Terminal(pod) && Condition(pod, corev1.PodScheduled) == nil
}

// Terminal reports whether no process of the pod runs any more: the kubelet reports
// these phases only then, and whoever else sets them (the pod garbage collector, for a
// node that is fenced) says the same with it. A pod that is being deleted is not
// terminal before it is in one of them.
func Terminal(pod *corev1.Pod) bool { return TerminalPhase(pod.Status.Phase) }

// TerminalPhase reports whether a pod in the phase never leaves it.
func TerminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// Package podstatus answers questions about any pod's status.
//
// It owns how a container's status and a condition are found, and the meaning of a pod's phase for its end. It must not
// know the purpose of a pod: package vmicontroller interprets the end of a launcher pod.
package podstatus

import corev1 "k8s.io/api/core/v1"

// Container returns the status of a container that is no init container, nil if it is not known yet.
func Container(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// Kubelet's reasons for a container that it has not begun to start, and for one of a pod whose init containers it starts.
const (
	creating     = "ContainerCreating"
	initializing = "PodInitializing"
)

// Waiting returns why a container waits, nil if it does not. The container of a pod whose init containers are not all up
// waits for the first of them that says why.
func Waiting(pod *corev1.Pod, name string) *corev1.ContainerStateWaiting {
	s := Container(pod, name)
	if s == nil {
		return nil
	}
	if w := s.State.Waiting; w == nil || w.Reason != initializing {
		return w
	}
	for i := range pod.Status.InitContainerStatuses {
		if w := pod.Status.InitContainerStatuses[i].State.Waiting; w != nil && w.Reason != initializing {
			return w
		}
	}
	return s.State.Waiting
}

// BeingPrepared reports whether the kubelet has yet to start a container, and has met no obstacle.
func BeingPrepared(pod *corev1.Pod, name string) bool {
	w := Waiting(pod, name)
	return Container(pod, name) == nil || w != nil && (w.Reason == creating || w.Reason == initializing)
}

// Condition returns the pod's condition of a type, nil for none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// BeingScheduled reports whether the scheduler has yet to decide about the pod. It emits a warning event if the pod
// disappears meanwhile.
func BeingScheduled(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !Terminal(pod) && Condition(pod, corev1.PodScheduled) == nil
}

// Terminal reports whether no process of the pod runs any more: the kubelet reports these phases only then, and other
// writers (the pod garbage collector, for a fenced node) mean the same. A deletion alone does not make a pod terminal.
func Terminal(pod *corev1.Pod) bool { return TerminalPhase(pod.Status.Phase) }

// TerminalPhase reports whether the phase is final.
func TerminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

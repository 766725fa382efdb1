package hotplugpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Observe returns the pod's state without Stuck and Cooling, which depend on the time.
func Observe(pod *corev1.Pod) hotplug.Pod {
	out := hotplug.Pod{
		Name: pod.Name, UID: pod.UID, Created: pod.CreationTimestamp.Time,
		Terminating: pod.DeletionTimestamp != nil,
		Finished:    podstatus.Terminal(pod),
	}
	if c := Status(pod); c != nil {
		out.Running = pod.Status.Phase == corev1.PodRunning && c.State.Running != nil
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil {
			out.Volumes = append(out.Volumes, hotplug.Volume{Name: v.Name, Claim: v.PersistentVolumeClaim.ClaimName})
		}
	}
	return out
}

// Status returns the status of the pod's container, nil if unknown.
func Status(pod *corev1.Pod) *corev1.ContainerStatus {
	return podstatus.Container(pod, layout.AttachmentContainer)
}

// IsOf reports whether the labels are those of an attachment pod of the VMI.
func IsOf(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) bool {
	return hasLabels(pod, vmi)
}

// hasLabels reports whether an object has the labels of the VMI's attachment pods.
func hasLabels(object metav1.Object, vmi *v1.VirtualMachineInstance) bool {
	has := object.GetLabels()
	for key, value := range Labels(vmi) {
		if has[key] != value {
			return false
		}
	}
	return true
}

// Foreign returns the message about another owner's pod with the name of an attachment pod.
func Foreign(name string) string {
	return fmt.Sprintf("pod %s exists and is not Drydock's: the volumes wait until it is deleted", name)
}

// Unschedulable reports whether the scheduler has found no node for the pod.
func Unschedulable(pod *corev1.Pod) bool { return unschedulable(pod) != nil }

func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	c := podstatus.Condition(pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}

// Obstacle returns why the pod does not run, "" for none.
func Obstacle(pod *corev1.Pod) string {
	if c := unschedulable(pod); c != nil {
		return fmt.Sprintf("the attachment pod %s can't be scheduled: %s", pod.Name, c.Message)
	}
	if c := Status(pod); c != nil && c.State.Waiting != nil && c.State.Waiting.Message != "" {
		return fmt.Sprintf("the attachment pod %s does not start: %s: %s", pod.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
	}
	return ""
}

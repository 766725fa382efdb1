package hotplugpod

import (
	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/podstatus"
)

// Observe is what virt-controller and virt-handler see of an attachment pod. Whether it
// is Stuck or Cooling is a matter of time, which is not looked at here.
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

// Status is the state of the pod's container, nil when it is not known yet.
func Status(pod *corev1.Pod) *corev1.ContainerStatus {
	return podstatus.Container(pod, layout.AttachmentContainer)
}

package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
)

// trimPod keeps the fields of a launcher pod that the loops read: a loop that reads another must add it here. Whole pods
// would be two thirds of virt-controller's memory.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	switch pod.Labels[v1.AppLabel] {
	case layout.MaintenanceApp:
		// Anybody makes these pods. They only wake a loop, which reads the pod from the API server.
		pod.Annotations, pod.Spec, pod.Status = nil, corev1.PodSpec{}, corev1.PodStatus{}
		return pod, nil
	case layout.LauncherApp:
	default:
		return pod, nil
	}
	if len(pod.Annotations[nichotplug.StatusAnnotation]) > nichotplug.MaxAnnotation {
		delete(pod.Annotations, nichotplug.StatusAnnotation) // it would not be read
	}
	containers := make([]corev1.Container, len(pod.Spec.Containers))
	for i := range containers {
		c := &pod.Spec.Containers[i]
		containers[i].Name, containers[i].Image, containers[i].Resources = c.Name, c.Image, c.Resources
	}
	var onClaims []corev1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].PersistentVolumeClaim != nil {
			onClaims = append(onClaims, pod.Spec.Volumes[i])
		}
	}
	var security *corev1.PodSecurityContext
	if s := pod.Spec.SecurityContext; s != nil && s.SELinuxOptions != nil {
		// The attachment pods share the SELinux options.
		security = &corev1.PodSecurityContext{SELinuxOptions: s.SELinuxOptions}
	}
	pod.Spec = corev1.PodSpec{
		NodeName:          pod.Spec.NodeName,
		PriorityClassName: pod.Spec.PriorityClassName,
		SchedulerName:     pod.Spec.SchedulerName,
		Containers:        containers,
		Volumes:           onClaims,
		SecurityContext:   security,
	}
	return pod, nil
}

// trimNode keeps whether a node takes new pods, whether virt-handler is away (schedulable.Candidate), and whether it has
// KVM (the metrics). Loops read the rest from the API server.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	kept := &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
	}
	if label, there := node.Labels[v1.NodeSchedulable]; there {
		kept.Labels = map[string]string{v1.NodeSchedulable: label}
	}
	for _, resource := range []corev1.ResourceName{layout.ResourceTUN, layout.ResourceKVM} {
		if devices, there := node.Status.Allocatable[resource]; there {
			if kept.Status.Allocatable == nil {
				kept.Status.Allocatable = corev1.ResourceList{}
			}
			kept.Status.Allocatable[resource] = devices
		}
	}
	return kept, nil
}

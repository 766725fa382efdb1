package defaults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// MaintenancePod adds a new maintenance pod's gate, and the finalizer, labels and owner reference by which it is
// found and deleted with its machine. of is the named machine, nil for none. A pod keeps its own controller.
func MaintenancePod(pod *corev1.Pod, of lock.Machine) {
	if !lock.Gated(pod) && pod.Spec.NodeName == "" { // A pod with a node is refused with an error.
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: layout.MaintenanceGate})
	}
	lock.Keep(pod)
	pod.Labels[v1.AppLabel] = layout.MaintenanceApp
	lock.LabelClaims(pod)
	if of == nil || slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == of.GetUID() }) {
		return
	}
	kind := v1.VirtualMachineGroupVersionKind.Kind
	if _, is := of.(*v1.VirtualMachineInstance); is {
		kind = v1.VirtualMachineInstanceGroupVersionKind.Kind
	}
	pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1.GroupVersion.String(), Kind: kind, Name: of.GetName(), UID: of.GetUID(),
	})
}

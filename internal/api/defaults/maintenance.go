package defaults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// MaintenancePod gives a new maintenance pod what makes it wait for its lock, and what it is found by: a gate, a
// finalizer, labels, and the VM as an owner, so that it goes with the VM. vm is the one that it names, nil if there is
// none. A pod that has a controller already, a Job's, keeps that.
func MaintenancePod(pod *corev1.Pod, vm *v1.VirtualMachine) {
	if !lock.Gated(pod) && pod.Spec.NodeName == "" { // With a node it is refused, in words.
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: layout.MaintenanceGate})
	}
	lock.Keep(pod)
	pod.Labels[v1.AppLabel] = layout.MaintenanceApp
	lock.LabelClaims(pod)
	if vm == nil || ownedBy(pod, vm.UID) {
		return
	}
	pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: vm.Name, UID: vm.UID,
	})
}

func ownedBy(pod *corev1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

package launcherpod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// Bond is the relation of a VMI to a pod with its launcher pod's name.
type Bond int

const (
	// Foreign means that the pod has only the name. It is neither used nor deleted.
	Foreign Bond = iota
	// Damaged means that the pod was made for the VMI, or claims so, and lost its owner reference or label before a
	// guest could run in it. It is deleted and created again.
	Damaged
	// Whole means that the pod is as Render made it. Until the handover, a guest starts only in such a pod.
	Whole
	// Chosen means that status.activePods has the pod's UID: a guest may run in it, whatever its owner and labels.
	Chosen
)

// BondOf returns a pod's relation to a VMI. Anybody who may change pods can remove owner references and labels, but not
// change names and UIDs: a pod with a UID in the VMI's status stays the VMI's (decision 210).
func BondOf(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) Bond {
	if _, chosen := vmi.Status.ActivePods[pod.UID]; chosen {
		return Chosen
	}
	owned := metav1.IsControlledBy(pod, vmi)
	labeled := pod.Labels[v1.CreatedByLabel] == string(vmi.UID)
	switch {
	case owned && labeled:
		return Whole
	case owned || labeled:
		return Damaged
	}
	return Foreign
}

// IsLauncher reports whether a pod has the labels of a launcher pod. Provisioning pods do not.
func IsLauncher(pod metav1.Object) bool {
	return pod.GetLabels()[v1.AppLabel] == layout.LauncherApp && pod.GetLabels()[v1.CreatedByLabel] != ""
}

// VMIOf returns the pod's VMI, "" for none. It trusts the pod's metadata, so it may only be used to enqueue.
func VMIOf(pod metav1.Object) string {
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == v1.VirtualMachineInstanceGroupVersionKind.Kind {
		return owner.Name
	}
	if pod.GetLabels()[v1.AppLabel] == layout.LauncherApp {
		return pod.GetAnnotations()[v1.DomainAnnotation]
	}
	return ""
}

// MadeFor returns the UID of a launcher pod's VMI by its label.
func MadeFor(pod metav1.Object) types.UID { return types.UID(pod.GetLabels()[v1.CreatedByLabel]) }

// PodGracePeriodSeconds returns the termination grace period of a VMI's pod.
func PodGracePeriodSeconds(vmi *v1.VirtualMachineInstance) int64 {
	return GracePeriodSeconds(vmi) + gracePeriodMarginSeconds
}

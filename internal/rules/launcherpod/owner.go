package launcherpod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// Bond is how a pod that has the name of a VMI's launcher pod, or is said to be
// it, is bound to the VMI.
type Bond int

const (
	// Foreign means that nothing on the pod but its name speaks for the VMI. It is
	// neither run in nor deleted.
	Foreign Bond = iota
	// Damaged means that the pod was made for the VMI, or says so, and has lost its
	// owner reference or its label before a guest could run in it. No guest is
	// started in it; it is deleted and made again.
	Damaged
	// Whole means that the pod is as Render made it. Before the VMI is handed over
	// to its node, a guest is started only in such a pod.
	Whole
	// Chosen means that status.activePods names the pod's UID: a guest may run in
	// it, whatever has become of its owner reference and its labels.
	Chosen
)

// BondOf reports how a pod is bound to a VMI. Owner references and labels can be
// removed by anyone who may change pods, names and UIDs can't: so a pod whose UID
// the VMI's status names stays the VMI's (decision 210).
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

// IsLauncher reports whether a pod says that it is a launcher pod. Provisioning
// pods, in which no guest can run, do not.
func IsLauncher(pod metav1.Object) bool {
	return pod.GetLabels()[v1.AppLabel] == layout.LauncherApp && pod.GetLabels()[v1.CreatedByLabel] != ""
}

// VMIOf is the name of the VMI that a pod says it was made for, "" for a pod of
// another kind. What it says is good for waking a loop and for nothing else.
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

// MadeFor is the UID of the VMI that a launcher pod says it was made for.
func MadeFor(pod metav1.Object) types.UID { return types.UID(pod.GetLabels()[v1.CreatedByLabel]) }

// PodGracePeriodSeconds is how long the kubelet gives the pod of a VMI to end.
func PodGracePeriodSeconds(vmi *v1.VirtualMachineInstance) int64 {
	return GracePeriodSeconds(vmi) + gracePeriodMarginSeconds
}

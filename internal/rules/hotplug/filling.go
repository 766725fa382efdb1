package hotplug

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/datavolume"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmistatus"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// Filling is a claim that is to be filled, with the pods and VMIs of its namespace as the API server has them. The VMIs are
// read after the pods: a guest whose pod has gone in between is among them.
type Filling struct {
	Claim string
	// ByDataVolume reports whether the DataVolume fills the claim that it has made, for the first time, and not an upload that
	// somebody asked for on an existing claim: nothing of anybody's is on it, and pods of others may be its first consumers.
	ByDataVolume bool
	Pods         []corev1.Pod
	VMIs         []v1.VirtualMachineInstance
}

// User names a pod or a VMI that keeps the claim from being filled, "" for none (decision 640). waits reports whether a
// maintenance pod with a gate waits for its VM's lock still.
func (f *Filling) User(waits func(*corev1.Pod) (bool, error)) (string, error) {
	pod, err := datavolume.UserOf(f.Pods, f.Claim, func(pod *corev1.Pod) (bool, error) {
		if lock.For(pod) != "" && lock.Gated(pod) {
			return waits(pod)
		}
		return f.ByDataVolume && (f.guestWaits(pod) || !ofMachine(pod)), nil
	})
	switch {
	case err != nil:
		return "", err
	case pod != "":
		return "pod " + pod, nil
	}
	for i := range f.VMIs {
		if vmi := &f.VMIs[i]; f.has(vmi) {
			return "VMI " + vmi.Name, nil
		}
	}
	return "", nil
}

// ofMachine reports whether a pod is a guest's or a maintenance pod: Drydock keeps it from running until the claim is filled.
func ofMachine(pod *corev1.Pod) bool { return GuestOf(pod) != "" || lock.For(pod) != "" }

// guestWaits reports whether a pod is a guest's that gets the claim when it is filled.
func (f *Filling) guestWaits(pod *corev1.Pod) bool {
	name := GuestOf(pod)
	return name != "" && slices.ContainsFunc(f.VMIs, func(vmi v1.VirtualMachineInstance) bool {
		return vmi.Name == name && AwaitsFilling(&vmi, pod, f.Claim)
	})
}

// has reports whether a VMI's guest may have the claim, whatever has become of its pods: where a node does not answer, it
// may run without them (decision 211).
func (f *Filling) has(vmi *v1.VirtualMachineInstance) bool {
	if vmistatus.StageOf(vmi.Status.Phase) != vmistatus.HandedOver {
		return false // It asks what fills the claim before it has a guest.
	}
	claims := launcherpod.StartClaims(vmi)
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if info := s.PersistentVolumeClaimInfo; info != nil && (s.HotplugVolume == nil || s.Phase != v1.VolumePending) {
			claims = append(claims, info.ClaimName)
		}
	}
	if !f.ByDataVolume {
		claims = append(claims, volumeclaim.Destinations(vmi)...)
	}
	return slices.Contains(claims, f.Claim)
}

// AwaitsFilling reports whether a pod is one of the VMI's, and its guest gets the claim only when the claim's DataVolume has
// filled it: a volume that is to be plugged then, or a disk that is to be copied there.
func AwaitsFilling(vmi *v1.VirtualMachineInstance, pod metav1.Object, claim string) bool {
	if pod.GetLabels()[v1.CreatedByLabel] != string(vmi.UID) {
		return false
	}
	if slices.Contains(volumeclaim.Destinations(vmi), claim) && !slices.Contains(volumeclaim.Names(vmi.Spec.Volumes), claim) {
		return true
	}
	return slices.ContainsFunc(EntriesOf(vmi), func(e Entry) bool { return e.Claim == claim && e.Phase == v1.VolumePending })
}

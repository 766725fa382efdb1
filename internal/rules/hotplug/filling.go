package hotplug

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Filling is a claim to be filled, with its namespace's pods that use it and the guests that count, from the API server.
// The VMIs are read after the pods, so that they include a guest whose pod has gone in between.
type Filling struct {
	Claim string
	// ByDataVolume means that the claim's own DataVolume fills it for the first time. It has no
	// content yet, and other pods may be its first consumers.
	ByDataVolume bool
	Pods         []corev1.Pod
	Guests       []Guest
}

// Guest is a VMI's part in the filling of a claim.
type Guest struct {
	VMI string
	// Has means that the guest has the claim, or gets it without another check.
	Has bool
	// Waiting are the guest's pods that get the claim only when it is filled.
	Waiting []string
}

// Uses reports whether a pod belongs to Pods.
func (f *Filling) Uses(pod *corev1.Pod) bool { return datavolume.Uses(pod, f.Claim) }

// Guest reports whether a VMI's guest belongs to Guests, and returns it. Pods must be complete.
func (f *Filling) Guest(vmi *v1.VirtualMachineInstance) (Guest, bool) {
	guest := Guest{VMI: vmi.Name, Has: f.has(vmi)}
	for i := range f.Pods {
		if pod := &f.Pods[i]; GuestOf(pod) == vmi.Name && AwaitsFilling(vmi, pod, f.Claim) {
			guest.Waiting = append(guest.Waiting, pod.Name)
		}
	}
	return guest, guest.Has || len(guest.Waiting) > 0
}

// User returns a pod or VMI that keeps the claim from being filled, "" for none (decision 640). waits reports whether
// a gated maintenance pod waits for its VM's lock.
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
	for _, guest := range f.Guests {
		if guest.Has {
			return "VMI " + guest.VMI, nil
		}
	}
	return "", nil
}

// ofMachine reports whether Drydock holds the pod back until the claim is filled.
func ofMachine(pod *corev1.Pod) bool { return GuestOf(pod) != "" || lock.For(pod) != "" }

func (f *Filling) guestWaits(pod *corev1.Pod) bool {
	return slices.ContainsFunc(f.Guests, func(guest Guest) bool { return slices.Contains(guest.Waiting, pod.Name) })
}

// has ignores pods: on a node that does not answer, a guest may run without them (decision 211).
func (f *Filling) has(vmi *v1.VirtualMachineInstance) bool {
	if vmistatus.StageOf(vmi.Status.Phase) != vmistatus.HandedOver {
		return false // Before it has a guest, it asks for the filler itself.
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

// AwaitsFilling reports whether the pod's guest gets the claim only after its DataVolume has filled it.
func AwaitsFilling(vmi *v1.VirtualMachineInstance, pod metav1.Object, claim string) bool {
	if pod.GetLabels()[v1.CreatedByLabel] != string(vmi.UID) {
		return false
	}
	if slices.Contains(volumeclaim.Destinations(vmi), claim) && !slices.Contains(volumeclaim.Names(vmi.Spec.Volumes), claim) {
		return true
	}
	return slices.ContainsFunc(EntriesOf(vmi), func(e Entry) bool { return e.Claim == claim && e.Phase == v1.VolumePending })
}

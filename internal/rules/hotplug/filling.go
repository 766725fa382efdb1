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

// Filling is a claim to be filled, with the pods that use it and the guests that count, from the API server. VMIs are read
// after the pods: they include a guest whose pod has gone in between.
type Filling struct {
	Claim string
	// ByDataVolume means that the claim's own DataVolume fills it first: other pods may be its first consumers.
	ByDataVolume bool
	Pods         []corev1.Pod
	Guests       []Guest
}

// Guest is a VMI's part in the filling of a claim.
type Guest struct {
	VMI     string
	Has     bool     // the claim, or gets it without another check
	Waiting []string // its pods that get the claim only when it is filled
}

// Uses reports whether a pod belongs in Pods.
func (f *Filling) Uses(pod *corev1.Pod) bool { return datavolume.Uses(pod, f.Claim) }

// Guest returns a VMI's guest and whether it belongs in Guests. Pods must be complete.
func (f *Filling) Guest(vmi *v1.VirtualMachineInstance) (Guest, bool) {
	guest := Guest{VMI: vmi.Name, Has: f.has(vmi)}
	for i := range f.Pods {
		if pod := &f.Pods[i]; GuestOf(pod) == vmi.Name && AwaitsFilling(vmi, pod, f.Claim) {
			guest.Waiting = append(guest.Waiting, pod.Name)
		}
	}
	return guest, guest.Has || len(guest.Waiting) > 0
}

// User returns a pod or VMI that delays the filling, "" for none (decision 640). waits reports whether a gated
// maintenance pod waits for its VM's lock.
func (f *Filling) User(waits func(*corev1.Pod) (bool, error)) (string, error) {
	pod, err := datavolume.UserOf(f.Pods, f.Claim, func(pod *corev1.Pod) (bool, error) {
		if lock.For(pod) != "" && lock.Gated(pod) {
			return waits(pod)
		}
		guestWaits := slices.ContainsFunc(f.Guests, func(guest Guest) bool { return slices.Contains(guest.Waiting, pod.Name) })
		// Drydock's own pods wait until the claim is filled.
		own := GuestOf(pod) != "" || lock.For(pod) != ""
		return f.ByDataVolume && (guestWaits || !own), nil
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

// has ignores pods: a guest on a node that does not answer may run without them (decision 211).
func (f *Filling) has(vmi *v1.VirtualMachineInstance) bool {
	if vmistatus.StageOf(vmi.Status.Phase) != vmistatus.HandedOver {
		return false // It asks for the filler itself before it has a guest.
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

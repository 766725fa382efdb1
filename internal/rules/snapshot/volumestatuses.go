package snapshot

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// notOnClaims is for volumes whose content is in the guest's pod, or another owner's.
const notOnClaims = "only volumes on PersistentVolumeClaims are snapshotted"

// Statuses returns for each volume whether snapshots of its VM include it. drivers has the driver of the storage class
// of each existing claim: the answer is for the class.
func Statuses(volumes []v1.Volume, drivers map[string]string, classes []Class) []v1.VolumeSnapshotStatus {
	claims := map[string]string{}
	for _, volume := range OnClaims(volumes) {
		claims[volume[0]] = volume[1]
	}
	var out []v1.VolumeSnapshotStatus
	for i := range volumes {
		reason := ""
		claim, onClaim := claims[volumes[i].Name]
		driver, exists := drivers[claim]
		switch {
		case !onClaim:
			reason = notOnClaims
		case !exists:
			reason = fmt.Sprintf("the claim %s does not exist", claim)
		default:
			_, reason = classFor(claim, driver, classes)
		}
		out = append(out, v1.VolumeSnapshotStatus{Name: volumes[i].Name, Enabled: reason == "", Reason: reason})
	}
	return out
}

// SameEnabled reports whether both have the same volumes, and say the same of them. The reasons may differ: that is worth no
// write.
func SameEnabled(a, b []v1.VolumeSnapshotStatus) bool {
	return slices.EqualFunc(a, b, func(a, b v1.VolumeSnapshotStatus) bool { return a.Name == b.Name && a.Enabled == b.Enabled })
}

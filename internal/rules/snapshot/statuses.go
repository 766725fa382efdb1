package snapshot

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// notOnClaims is said of volumes whose content is nowhere but in the guest's pod, or somebody else's.
const notOnClaims = "only volumes on PersistentVolumeClaims are snapshotted"

// Statuses says of each volume whether snapshots of its VM have it. drivers has the names of the claims that exist, each
// with the driver of its storage class, "" for none. A claim need not be bound yet: the answer is of its class.
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

package hotplug

import "k8s.io/apimachinery/pkg/types"

// Leftover is an attachment pod that may be of a VMI that is gone.
type Leftover struct {
	Pod Pod
	// VMI is the UID of the VMI that the pod was made for.
	VMI types.UID
}

// Leftovers are the pods that hold nothing in use any more, for the VMI that they
// were made for does not exist and its guest has ended; wait reports that there
// are others whose guest has not. instance is the UID of the VMI that has the
// name, "" for none, and guests are the VMIs, by UID, of which a launcher pod has
// not ended. Both must be the API server's word, and younger than the pods: a
// cache that lags behind that of pods lacks a VMI that has just been made.
func Leftovers(pods []Leftover, instance types.UID, guests map[types.UID]bool) (leftovers []Pod, wait bool) {
	for _, p := range pods {
		switch {
		case p.VMI == instance && instance != "":
		case guests[p.VMI]:
			wait = true
		default:
			leftovers = append(leftovers, p.Pod)
		}
	}
	return leftovers, wait
}

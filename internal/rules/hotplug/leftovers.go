package hotplug

import "k8s.io/apimachinery/pkg/types"

// Leftover is an attachment pod whose VMI may be gone.
type Leftover struct {
	Pod Pod
	VMI types.UID
}

// Leftovers returns the pods without a VMI and a guest; wait means that other guests have not ended. instance is the UID of
// the VMI of that name, guests has the UIDs of VMIs with a launcher pod that has not ended. Both are read from the API
// server after the pods: an outdated cache may lack a new VMI.
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

package device

import (
	"os"

	"drydock.dev/drydock/internal/contracts/layout"
)

// guests is how many of each device are offered. The devices are not scarce:
// every open of one is another; the number is only more than a node can run.
const guests = 1000

// Resource is what the kubelet is offered.
type Resource struct {
	Name  string
	Count int
	// Nodes are the device nodes that come with one of them, asked for at each
	// allocation.
	Nodes func() []string
}

// Facts are what the node has.
type Facts struct {
	// KVM says that the probe ran a guest with it.
	KVM bool
	// Exists reports whether the node has a device node.
	Exists func(path string) bool
	// Emulation reports whether the cluster lets guests run without KVM.
	Emulation func() bool
}

// Exists looks for a device node in this process's own /dev, which a
// privileged container shares with its node.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Resources are those that the node can offer. A pod that asks for one that it
// cannot stays pending with the scheduler's own reason.
func Resources(f Facts) []Resource {
	var list []Resource
	add := func(name string, nodes func() []string) {
		list = append(list, Resource{Name: name, Count: guests, Nodes: nodes})
	}
	// What speeds up a guest with KVM and is missing on some nodes comes with KVM
	// instead of being asked for: a pod is made before its node is known.
	accelerated := []string{layout.KVMDevice}
	if f.Exists(layout.VhostNetDevice) {
		accelerated = append(accelerated, layout.VhostNetDevice)
	}
	if f.KVM {
		add(layout.ResourceKVM, func() []string { return accelerated })
	}
	if f.Exists(layout.TUNDevice) {
		add(layout.ResourceTUN, func() []string {
			// Where emulation is allowed, pods do not ask for KVM; they get it
			// here, so that emulation is only for nodes without.
			if f.KVM && f.Emulation() {
				return append([]string{layout.TUNDevice}, accelerated...)
			}
			return []string{layout.TUNDevice}
		})
	}
	if f.Exists(layout.VhostNetDevice) {
		add(layout.ResourceVhostNet, func() []string { return []string{layout.VhostNetDevice} })
	}
	return list
}

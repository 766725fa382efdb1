package device

import (
	"os"
	"strconv"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// guests exceeds the guests of a node: a device can be opened any number of times.
const guests = 1000

// Resource is one resource for the kubelet.
type Resource struct {
	Name  string
	Count int
	Nodes func() []string
}

// devices never change.
func (r Resource) devices() (list []*v1beta1.Device, changed <-chan struct{}) {
	for i := range r.Count {
		list = append(list, &v1beta1.Device{ID: strconv.Itoa(i), Health: v1beta1.Healthy})
	}
	return list, nil
}

func (r Resource) allocate([]string) (*v1beta1.ContainerAllocateResponse, error) {
	answer := &v1beta1.ContainerAllocateResponse{}
	for _, path := range r.Nodes() {
		give(answer, path)
	}
	return answer, nil
}

// Facts are the node's devices.
type Facts struct {
	// KVM means that the probe ran a guest with it.
	KVM    bool
	Exists func(path string) bool
	// Emulation reports whether the cluster permits guests without KVM.
	Emulation func() bool
}

// Exists reports whether /dev has a device node. A privileged container has those of its node.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Resources returns what the node can offer. A pod that requests another resource stays pending.
func Resources(f Facts) []Resource {
	var list []Resource
	add := func(name string, nodes func() []string) {
		list = append(list, Resource{Name: name, Count: guests, Nodes: nodes})
	}
	// An optional accelerator comes with KVM rather than as a request: some nodes lack it, and the pod is created
	// before its node is known.
	accelerated := []string{layout.KVMDevice}
	if f.Exists(layout.VhostNetDevice) {
		accelerated = append(accelerated, layout.VhostNetDevice)
	}
	if f.KVM {
		add(layout.ResourceKVM, func() []string { return accelerated })
	}
	if f.Exists(layout.TUNDevice) {
		add(layout.ResourceTUN, func() []string {
			// With emulation permitted, pods don't request KVM, and get it here: only nodes without KVM emulate.
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

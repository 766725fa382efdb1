package launcherpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// DeviceNetwork is a network on which a VMI has a device of its node.
type DeviceNetwork struct {
	// Name is its name in the VMI's spec.
	Name string
	// Attachment names its NetworkAttachmentDefinition, which says what resource of the node it needs.
	Attachment
}

// DeviceNetworks are the networks on which the VMI has a device of its node, in their order.
func DeviceNetworks(vmi *v1.VirtualMachineInstance) []DeviceNetwork {
	var out []DeviceNetwork
	for i := range vmi.Spec.Networks {
		n := &vmi.Spec.Networks[i]
		if iface := InterfaceOf(vmi, n.Name); n.Multus != nil && iface != nil && machine.IsDevice(iface) {
			out = append(out, DeviceNetwork{n.Name, AttachmentOf(vmi.Namespace, n)})
		}
	}
	return out
}

// askForDevices adds to what a container asks for the device of each interface that is one. Two networks may need the same
// resource, and the VMI may ask for some of it itself.
func askForDevices(resources *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, of map[string]corev1.ResourceName) error {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		if !machine.IsDevice(iface) {
			continue
		}
		name, known := of[iface.Name]
		if !known {
			return fmt.Errorf("spec.domain.devices.interfaces[%d].sriov: the resource of its network is not known", i)
		}
		count := resources.Limits[name]
		if q := resources.Requests[name]; q.Cmp(count) > 0 {
			count = q
		}
		count.Add(resource.MustParse("1"))
		resources.Requests[name], resources.Limits[name] = count, count.DeepCopy()
	}
	return nil
}

// InterfaceOf is the VMI's interface of a name, nil if there is none.
func InterfaceOf(vmi *v1.VirtualMachineInstance, name string) *v1.Interface {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == name {
			return iface
		}
	}
	return nil
}

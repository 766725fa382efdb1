package launcherpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// DeviceNetwork is a network on which a VMI uses a device of its node.
type DeviceNetwork struct {
	Name string
	// Attachment names the NetworkAttachmentDefinition, which has the node resource.
	Attachment
}

// DeviceNetworks returns them in the order of the VMI's networks.
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

// Two networks may use one resource, and the VMI may request some itself.
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
		askForMore(resources, name, 1)
	}
	return nil
}

// A device that is not permitted makes no pod: the permission may have gone since admission.
func askForHostDevices(resources *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) error {
	requests, err := hostdevice.Requests(&vmi.Spec, settings.HostDevices)
	for name, count := range requests {
		askForMore(resources, name, count)
	}
	return err
}

func askForMore(resources *corev1.ResourceRequirements, name corev1.ResourceName, more int64) {
	count := resources.Limits[name]
	if q := resources.Requests[name]; q.Cmp(count) > 0 {
		count = q
	}
	count.Add(*resource.NewQuantity(more, resource.DecimalSI))
	resources.Requests[name], resources.Limits[name] = count, count.DeepCopy()
}

// InterfaceOf returns the VMI's interface, nil for none.
func InterfaceOf(vmi *v1.VirtualMachineInstance, name string) *v1.Interface {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == name {
			return iface
		}
	}
	return nil
}

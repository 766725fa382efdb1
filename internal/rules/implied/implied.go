// Package implied adds the devices that a spec has without naming them: a disk for each volume, the pod's
// network, the input device of autoattachInputDevice.
//
// Admission completes VMIs by it, and package instancetype VMs, whose preferences are about those devices, too. It
// must not say of what model or on which bus a device is, and is pure.
package implied

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Disks gives every volume a disk, unless it has a disk or a file system.
func Disks(spec *v1.VirtualMachineInstanceSpec) {
	devices := &spec.Domain.Devices
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; !hasDevice(devices, name) {
			devices.Disks = append(devices.Disks, v1.Disk{Name: name})
		}
	}
}

func hasDevice(devices *v1.Devices, volume string) bool {
	return slices.ContainsFunc(devices.Disks, func(d v1.Disk) bool { return d.Name == volume }) ||
		slices.ContainsFunc(devices.Filesystems, func(f v1.Filesystem) bool { return f.Name == volume })
}

// Network gives a spec that speaks of no network the pod's, with an interface of the binding.
func Network(spec *v1.VirtualMachineInstanceSpec, binding string) {
	devices := &spec.Domain.Devices
	attach := devices.AutoattachPodInterface
	if len(spec.Networks) > 0 || len(devices.Interfaces) > 0 || (attach != nil && !*attach) {
		return
	}
	spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	iface := v1.DefaultMasqueradeNetworkInterface()
	if binding == string(v1.BridgeInterface) {
		iface = v1.DefaultBridgeNetworkInterface()
	}
	devices.Interfaces = []v1.Interface{*iface}
}

// Input gives a guest that is to have an input device, and names none, one.
func Input(devices *v1.Devices) {
	if attach := devices.AutoattachInputDevice; attach != nil && *attach && len(devices.Inputs) == 0 {
		devices.Inputs = []v1.Input{{Name: "default-0"}}
	}
}

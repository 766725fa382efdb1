// Package implied adds the devices that a spec implies without naming them: a disk for each volume, the pod network,
// the input device of autoattachInputDevice. It must not choose models or buses.
//
// Admission uses it for VMIs, and package instancetype for VMs, because preferences apply to those devices.
package implied

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Disks adds a disk for every volume without a disk or file system.
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

// Network adds the pod network, with an interface of the binding, to a spec without networks.
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

// Input adds an input device if the spec wants one and names none.
func Input(devices *v1.Devices) {
	if attach := devices.AutoattachInputDevice; attach != nil && *attach && len(devices.Inputs) == 0 {
		devices.Inputs = []v1.Input{{Name: "default-0"}}
	}
}

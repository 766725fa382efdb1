package machine

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// hostDevices has a root port for each device of the node. They come after all others, so that they move none.
func (b *builder) hostDevices() {
	for i, d := range hostdevice.Of(&b.vmi.Spec) {
		b.named(d.Path, d.Name)
		address := b.in.HostDevices[d.ID]
		if address == "" {
			b.refuse(d.Path+".deviceName", "which device of the node it is has not been found out")
			continue
		}
		b.device(behindPort(Properties{"driver": hostdevice.Driver, "id": d.ID, "host": address}, maxPorts+i))
	}
}

// HostDeviceAddresses returns where the guest sees the devices of its node on the PCI bus, in the order of hostdevice.Of.
func HostDeviceAddresses(spec *v1.VirtualMachineInstanceSpec) []string {
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
	b.ports()
	var addresses []string
	for i := range hostdevice.Of(spec) {
		// The firmware numbers the buses in the order of the ports.
		addresses = append(addresses, fmt.Sprintf("0000:%02x:00.0", b.placement.count+i+1))
	}
	return addresses
}

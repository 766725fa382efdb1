package machine

import (
	"errors"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

var nicDrivers = map[string]string{
	"":         "virtio-net-pci",
	v1.VirtIO:  "virtio-net-pci",
	"e1000":    "e1000",
	"e1000e":   "e1000e",
	"ne2k_pci": "ne2k_pci",
	"pcnet":    "pcnet",
	"rtl8139":  "rtl8139",
}

// NICID returns the id of an interface's device.
func NICID(iface string) string { return "net-" + iface }

// NetdevID returns the id of an interface's backend.
func NetdevID(iface string) string { return "host-" + iface }

// IsDevice reports whether the guest gets a device of the node.
func IsDevice(iface *v1.Interface) bool {
	return iface.SRIOV != nil && iface.State != v1.InterfaceStateAbsent
}

// HasDevices reports whether the guest gets devices of the node: host devices, GPUs, or interfaces for which IsDevice is true.
func HasDevices(spec *v1.VirtualMachineInstanceSpec) bool {
	if hostdevice.Any(spec) {
		return true
	}
	for i := range spec.Domain.Devices.Interfaces {
		if IsDevice(&spec.Domain.Devices.Interfaces[i]) {
			return true
		}
	}
	return false
}

// MayHaveDevices reports whether the guest has devices of the node, or may get some while it runs.
func MayHaveDevices(spec *v1.VirtualMachineInstanceSpec) bool {
	return hostdevice.Any(spec) || sriov.Any(spec)
}

// BuildNIC returns the backend and the device of an interface to plug, behind the port of the next start. The backend
// is nil for a device of the node.
func BuildNIC(in Input, iface string) (netdev, device Properties, err error) {
	b := newBuilder(in)
	b.ports()
	for i := range b.spec.Devices.Interfaces {
		if spec := &b.spec.Devices.Interfaces[i]; spec.Name == iface && len(b.errs) == 0 {
			b.nic(spec, fmt.Sprintf("devices.interfaces[%d]", i), b.placement.nics[i])
			if len(b.errs) == 0 {
				if len(b.Netdevs) > 0 {
					netdev = b.Netdevs[0]
				}
				return netdev, b.Devices[len(b.Devices)-1], nil
			}
		}
	}
	if len(b.errs) == 0 {
		return nil, nil, fmt.Errorf("the VMI has no interface %q", iface)
	}
	return nil, nil, errors.Join(b.errs...)
}

func (b *builder) nics() {
	for i := range b.spec.Devices.Interfaces {
		spec := &b.spec.Devices.Interfaces[i]
		if spec.State == v1.InterfaceStateAbsent {
			continue
		}
		b.nic(spec, fmt.Sprintf("devices.interfaces[%d]", i), b.placement.nics[i])
	}
}

func (b *builder) nic(spec *v1.Interface, path string, port int) {
	driver := nicDrivers[spec.Model]
	if driver == "" {
		b.refuse(path+".model", "%q is none of virtio, e1000, e1000e, ne2k_pci, pcnet, rtl8139", spec.Model)
		return
	}
	host, ok := b.in.NICs[spec.Name]
	if !ok {
		b.refuse(path+".name", "the network of interface %q has not been prepared", spec.Name)
		return
	}
	b.named(path, spec.Name)
	if spec.SRIOV != nil {
		if host.Device == "" {
			b.refuse(path+".sriov", "which device of the node interface %q is has not been found out", spec.Name)
			return
		}
		device := behindPort(Properties{"driver": "vfio-pci", "id": NICID(spec.Name), "host": host.Device}, port)
		b.seat(spec, device)
		b.device(device)
		return
	}
	netdev := Properties{
		"type": "tap", "id": NetdevID(spec.Name), "ifname": host.Tap, "script": "no", "downscript": "no",
	}
	mac := host.MAC
	if mac == "" {
		mac = MAC(b.vmi, spec.Name)
	}
	device := behindPort(Properties{
		"driver": driver, "id": NICID(spec.Name), "netdev": NetdevID(spec.Name), "mac": normalMAC(mac),
	}, port)
	if driver == nicDrivers[v1.VirtIO] {
		b.virtio(device)
		if host.VhostNet {
			netdev["vhost"] = true
		}
		if host.MTU != 0 {
			device["host_mtu"] = host.MTU
		}
		if queues := Queues(&b.vmi.Spec); queues > 1 {
			netdev["queues"] = queues
			device["mq"] = true
			// A vector for each direction of each queue, one for the configuration and one for the control queue.
			device["vectors"] = 2*queues + 2
		}
	}
	b.seat(spec, device)
	b.netdev(netdev)
	b.device(device)
}

func (b *builder) seat(spec *v1.Interface, device Properties) {
	if index, ok := b.bootIndex(spec.BootOrder, -1); ok {
		device["bootindex"] = index
	} else {
		// The boot ROM would only take time at every start.
		device["romfile"] = ""
	}
	if spec.ACPIIndex != 0 {
		device["acpi-index"] = spec.ACPIIndex
	}
}

// maxQueues is the kernel's limit for a tap device.
const maxQueues = 256

// Queues returns the number of queue pairs of each virtio interface and its tap device.
func Queues(spec *v1.VirtualMachineInstanceSpec) int {
	if !isTrue(spec.Domain.Devices.NetworkInterfaceMultiQueue) {
		return 1
	}
	return min(VCPUs(Topology(spec)), maxQueues)
}

// virtio restricts a device to virtio 1.0, unless the VMI's guest is too old for it.
func (b *builder) virtio(device Properties) Properties {
	if isTrue(b.spec.Devices.UseVirtioTransitional) {
		device["disable-legacy"], device["disable-modern"] = "off", false
	} else {
		device["disable-legacy"] = "on"
	}
	return device
}

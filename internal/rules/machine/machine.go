// Package machine turns a VirtualMachineInstance into a QEMU machine: devices
// with stable ids and addresses, the images behind its disks, the command line.
//
// It owns every rule of how a field of the VMI's spec becomes something that
// the guest can see. It is pure: it opens no file, starts nothing, asks no
// clock; the same Input always gives the same Machine, to the byte. It must
// not import a client, and it does not repeat admission: it refuses only what it
// can't express.
package machine

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// NIC is the node's end of one of the VMI's interfaces.
type NIC struct {
	// Tap is the tap device in the pod's network namespace.
	Tap string
	// MAC is what the guest's interface is known by; empty means MAC().
	MAC string
	// MTU is offered to the guest by virtio-net; 0 leaves it to DHCP.
	MTU int
	// Device is the PCI address of the node's device that the interface is, "" for one that QEMU makes. Then there
	// is no tap.
	Device string
	// VhostNet says that /dev/vhost-net can be opened in the pod.
	VhostNet bool
}

// Input is all that a machine depends on.
type Input struct {
	VMI *v1.VirtualMachineInstance
	// KVM says that the node's probe found KVM usable; otherwise the guest's
	// instructions are translated (TCG).
	KVM bool
	// MachineType and CPUModel are the cluster's defaults for what the VMI
	// leaves open; empty means q35 and host-model.
	MachineType, CPUModel string
	// SMBIOS is the cluster's spec.configuration.smbios, nil for the defaults.
	SMBIOS *v1.SMBiosConfiguration
	// Images are virt-launcher's answers to Images(), by name.
	Images map[string]launch.PreparedImage
	// NICs are what the network's preparation answered, by interface name.
	NICs map[string]NIC
	// Now is the start of the guest's clock. It is needed only by a VMI whose
	// spec.domain.clock asks for an offset or a time zone.
	Now time.Time
	// Incoming is the UID of the migration that brings the guest; empty for one that is started
	// here.
	Incoming types.UID
	// Sockets is how many of the guest's CPU sockets have their CPUs when QEMU starts; 0 means as
	// many as the VMI asks for. A guest that arrives has those that it had where it comes from.
	Sockets uint32
	// Memory is how much memory in bytes the guest was started with, elsewhere; 0 means as much as the VMI asks for.
	// What it has got since comes with the guest.
	Memory int64
}

// Properties are the members of one JSON object on QEMU's command line or in a
// QMP command's arguments.
type Properties map[string]any

// Machine is a QEMU machine. The same Properties serve the command line and
// QMP (object-add, blockdev-add, netdev_add, device_add).
type Machine struct {
	// Objects, Blockdevs, Netdevs and Devices are in the order in which QEMU
	// must create them.
	Objects, Blockdevs, Netdevs, Devices []Properties

	// options are what QEMU takes as key=value text only.
	options []option
}

// option is one command line option with its value.
type option struct{ name, value string }

// Build makes the machine of a VMI. Its errors name the fields' paths; all of
// them come at once.
func Build(in Input) (*Machine, error) {
	b := newBuilder(in)
	for _, part := range []func(*builder){
		(*builder).basics, (*builder).memory, (*builder).cpu, (*builder).clock,
		(*builder).features, (*builder).firmware, (*builder).ioThreads, (*builder).ports,
		(*builder).controllers, (*builder).channels, (*builder).display, (*builder).disks,
		(*builder).nics, (*builder).peripherals, (*builder).tpm, (*builder).platform,
	} {
		part(b)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return &b.Machine, nil
}

// Package machine turns a VirtualMachineInstance into a QEMU machine: devices with stable ids and addresses, the
// images of its disks, and the command line.
//
// It owns every rule by which a field of the spec becomes visible to the guest. It does no I/O and reads no clock,
// and the same Input always gives the same Machine, to the byte. It must not import a client, or repeat admission: it
// refuses only specs that it can't express.
package machine

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// NIC is the node's end of an interface.
type NIC struct {
	Tap string
	// MAC is the address of the guest's interface; "" means MAC().
	MAC string
	// MTU is offered to the guest by virtio-net; 0 leaves it to DHCP.
	MTU int
	// Device is the PCI address of a device of the node, "" for an emulated interface.
	Device string
	// VhostNet means that the pod can open /dev/vhost-net.
	VhostNet bool
}

// Input is the input of Build.
type Input struct {
	VMI *v1.VirtualMachineInstance
	// KVM means that the node has usable KVM; otherwise the guest is emulated (TCG).
	KVM bool
	// MachineType and CPUModel are the cluster's defaults; "" means q35 and host-model.
	MachineType, CPUModel string
	SMBIOS                *v1.SMBiosConfiguration
	// Images are virt-launcher's, for Images().
	Images map[string]launch.PreparedImage
	// Claims are those of volumes, by volume. Of a plugged one the VMI's status has it.
	Claims map[string]*v1.PersistentVolumeClaimInfo
	NICs   map[string]NIC
	// HostDevices are PCI addresses of the node's devices, by hostdevice.Device.ID.
	HostDevices map[string]string
	// Now starts the guest's clock, for a spec.domain.clock with an offset or a time zone.
	Now time.Time
	// Incoming is the UID of the migration that brings the guest, "" for a new start.
	Incoming types.UID
	// Sockets is the number with CPUs at QEMU's start: the source's for a migrated guest; 0 means the spec's.
	Sockets uint32
	// Memory is the boot memory in bytes of a migrated guest; 0 means the spec's. Plugged memory arrives with the guest.
	Memory int64
	// LogConsole copies the output of the serial console to layout.ConsoleLogDescriptor.
	LogConsole bool
}

// Properties are a JSON object for QEMU's command line or QMP.
type Properties map[string]any

// Machine is a QEMU machine, for the command line and for QMP.
type Machine struct {
	// QEMU must create these in order.
	Objects, Blockdevs, Netdevs, Devices []Properties

	options []option
}

type option struct{ name, value string }

// Build returns the machine of a VMI. The error joins all problems and names the fields' paths.
func Build(in Input) (*Machine, error) {
	b := newBuilder(in)
	for _, part := range []func(*builder){
		(*builder).basics, (*builder).memory, (*builder).cpu, (*builder).clock,
		(*builder).features, (*builder).firmware, (*builder).ioThreads, (*builder).ports,
		(*builder).controllers, (*builder).channels, (*builder).display, (*builder).disks,
		(*builder).nics, (*builder).hostDevices, (*builder).shares, (*builder).peripherals, (*builder).tpm, (*builder).platform,
	} {
		part(b)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return &b.Machine, nil
}

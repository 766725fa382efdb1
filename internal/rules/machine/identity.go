package machine

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// Hostname is what the guest is called, by its pod, DHCP and cloud-init alike:
// what the VMI asks for, or the first part of its name, cut to what one label of
// a DNS name may hold.
func Hostname(vmi *v1.VirtualMachineInstance) string {
	name := vmi.Spec.Hostname
	if name == "" {
		name = vmi.Name
	}
	name, _, _ = strings.Cut(name, ".")
	if len(name) > validation.DNS1123LabelMaxLength {
		name = strings.TrimRight(name[:validation.DNS1123LabelMaxLength], "-")
	}
	return name
}

// MAC is the hardware address that the guest sees for an interface: the
// spec's, else one made from the firmware UUID and the interface's name. So it
// stays the same across restarts, migrations and the loss of the status, and
// a clone, which gets a new UUID, gets new addresses. An address in the spec
// that is not one comes back as it is; admission refuses it.
func MAC(vmi *v1.VirtualMachineInstance, iface string) string {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		spec := &vmi.Spec.Domain.Devices.Interfaces[i]
		if spec.Name == iface && spec.MacAddress != "" {
			return normalMAC(spec.MacAddress)
		}
	}
	sum := sha256.Sum256([]byte("drydock mac\x00" + identity(vmi) + "\x00" + iface))
	// Locally administered, unicast.
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// identity is what makes a guest itself. Admission gives every VMI a firmware
// UUID; a namespace and name serve only an object that never passed it.
func identity(vmi *v1.VirtualMachineInstance) string {
	if f := vmi.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return vmi.Namespace + "/" + vmi.Name
}

// normalMAC writes an address as QEMU and Linux do: DE-AD… becomes de:ad….
func normalMAC(mac string) string {
	if hw, err := net.ParseMAC(mac); err == nil {
		return hw.String()
	}
	return mac
}

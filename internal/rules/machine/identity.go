package machine

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// Hostname returns the guest's host name for its pod, DHCP and cloud-init: the first part of the spec's, or else of the
// VMI's name, cut to the length of a DNS label.
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

// MAC returns the spec's address, or one made from the firmware UUID and the interface's name: it survives restarts,
// migrations and the loss of the status, and a clone gets another. It returns an invalid address unchanged; admission
// refuses it.
func MAC(vmi *v1.VirtualMachineInstance, iface string) string {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		spec := &vmi.Spec.Domain.Devices.Interfaces[i]
		if spec.Name == iface && spec.MacAddress != "" {
			return normalMAC(spec.MacAddress)
		}
	}
	// Admission gives every VMI a firmware UUID; the name is for objects that bypassed it.
	guest := vmi.Namespace + "/" + vmi.Name
	if f := vmi.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		guest = string(f.UUID)
	}
	sum := sha256.Sum256([]byte("drydock mac\x00" + guest + "\x00" + iface))
	// Locally administered, unicast.
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// normalMAC returns an address in the form of QEMU and Linux: DE-AD… becomes de:ad….
func normalMAC(mac string) string {
	if hw, err := net.ParseMAC(mac); err == nil {
		return hw.String()
	}
	return mac
}

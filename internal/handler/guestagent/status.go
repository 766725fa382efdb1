package guestagent

import (
	"net/netip"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/agent"
)

const (
	// They limit a guest's data in its VMI's status.
	maxReported = 32
	maxIPs      = 16
	maxText     = 256
)

// interfacesOf omits interfaces that can't be reached from outside.
func interfacesOf(all []agent.Interface) []v1.VirtualMachineInstanceNetworkInterface {
	var list []v1.VirtualMachineInstanceNetworkInterface
	for _, i := range all {
		if i.Name == "lo" || i.HardwareAddr == "" || i.HardwareAddr == "00:00:00:00:00:00" || len(list) == maxReported {
			continue
		}
		status := v1.VirtualMachineInstanceNetworkInterface{InterfaceName: truncate(i.Name), MAC: truncate(strings.ToLower(i.HardwareAddr))}
		for _, a := range i.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && !ip.IsLinkLocalUnicast() && len(status.IPs) < maxIPs {
				status.IPs = append(status.IPs, ip.String())
			}
		}
		if len(status.IPs) > 0 {
			status.IP = status.IPs[0]
		}
		list = append(list, status)
	}
	return list
}

func truncate(text string) string { return truncateTo(text, maxText) }

func truncateTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// Package ipaddress parses the IP addresses and networks that users write in a VMI's spec, so that admission and
// virt-handler read them alike. It must not decide which addresses a field may have.
package ipaddress

import (
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"
)

// Parse parses an address. KubeVirt and older Kubernetes accept leading zeros in IPv4 addresses, as decimal numbers:
// 010.1.1.1 is 10.1.1.1.
func Parse(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err == nil || strings.Contains(text, ":") {
		return address, err
	}
	if v4, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text).To4()); ok {
		return v4, nil
	}
	return netip.Addr{}, err
}

// ParsePrefix parses a network, with addresses as Parse does.
func ParsePrefix(text string) (netip.Prefix, error) {
	address, bits, _ := strings.Cut(text, "/")
	if parsed, err := Parse(address); err == nil {
		text = parsed.String() + "/" + bits
	}
	return netip.ParsePrefix(text)
}

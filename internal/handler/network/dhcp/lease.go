// Package dhcp gives one guest its network configuration, on one link: DHCPv4,
// and for IPv6 router advertisements with DHCPv6.
//
// What is answered is a pure function of the Lease and the request. The server
// reads and writes whole Ethernet frames on the guest's tap, below the pod's
// bridge and IP stack, so it needs no address of its own there, receives requests
// of its own guest only, and sends to nobody else (decision 050). It hands out one
// address to one MAC for ever: leases, pools and databases do not exist here.
package dhcp

import (
	"net"
	"net/netip"
	"time"
)

// forever is a lease's time: the address is the guest's as long as the pod is.
const forever = time.Duration(0xffffffff) * time.Second

// Lease is all that a guest is told.
type Lease struct {
	// MAC is the guest's; nobody else is answered.
	MAC net.HardwareAddr
	// ServerMAC is the address that answers come from.
	ServerMAC net.HardwareAddr
	// ServerID names the server in DHCPv4, and is what its packets come from.
	ServerID netip.Addr
	// Address is the guest's, with the length of its network's prefix.
	Address netip.Prefix
	// Routes are those beside the address's own network, the default one
	// included.
	Routes []Route
	// MTU is the network's.
	MTU int

	Hostname string
	// Domain is the guest's own domain, Search its list for resolving names.
	Domain string
	Search []string
	DNS    []netip.Addr
	NTP    []netip.Addr

	// TFTPServer and BootFile are for guests that boot from the network.
	TFTPServer, BootFile string
	// Private are options 224 to 254, as they are.
	Private map[uint8]string

	// IPv6 is nil where the guest has no IPv6.
	IPv6 *Lease6
}

// Route is a way out of the guest's own network. Without a Gateway the
// destination is on the link itself.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Lease6 is the guest's IPv6 configuration.
type Lease6 struct {
	Address netip.Addr
	// Router is the link-local address of the guest's default gateway.
	Router netip.Addr
	DNS    []netip.Addr
}

// Package dhcp gives one guest its network configuration on one link: by DHCPv4, and for IPv6 by router
// advertisements and DHCPv6.
//
// The answer is a pure function of the Lease and the request. The server reads and writes whole Ethernet frames on
// the guest's tap, below the pod's bridge and IP stack: it needs no address, and hears and serves only its own guest.
// It assigns one address to one MAC forever, without leases, pools or a database.
package dhcp

import (
	"net"
	"net/netip"
	"time"
)

// forever is the lease time: the guest keeps its address as long as the pod exists.
const forever = time.Duration(0xffffffff) * time.Second

// Lease is a guest's network configuration.
type Lease struct {
	// Requests from other MACs get no answer.
	MAC       net.HardwareAddr
	ServerMAC net.HardwareAddr
	// ServerID identifies the server in DHCPv4 and is its packets' source address.
	ServerID netip.Addr
	Address  netip.Prefix
	// Routes excludes the own network and includes the default route.
	Routes []Route
	MTU    int

	Hostname string
	// Domain is the guest's own domain, Search its list for resolving names.
	Domain string
	Search []string
	DNS    []netip.Addr
	NTP    []netip.Addr

	TFTPServer, BootFile string
	// Private has the options 224 to 254, unchanged.
	Private map[uint8]string

	IPv6 *Lease6
}

// Route leads out of the guest's network. Without a Gateway the destination is on the link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Lease6 is the guest's IPv6 configuration.
type Lease6 struct {
	Address netip.Addr
	Router  netip.Addr
	DNS     []netip.Addr
}

// Package reach judges the addresses of an import's source.
//
// The creator of a DataVolume chooses its URL, to which the worker connects from inside the cluster: without this check
// any user could read services on the worker's node, or a cloud's metadata about its machines. Each connection's address
// is judged, so that a name with changing addresses, or a server that redirects, gains nothing (decision 225).
//
// It owns only the lists. The code that makes a connection calls Guard.Control.
package reach

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Guard permits or refuses connections. The zero value refuses only reserved addresses.
type Guard struct{ denied, allowed []netip.Prefix }

// New returns a guard that refuses the denied networks in addition to the reserved ones, and permits the allowed ones
// with priority over both.
func New(denied, allowed []string) (Guard, error) {
	var g Guard
	for list, texts := range map[*[]netip.Prefix][]string{&g.denied: denied, &g.allowed: allowed} {
		for _, text := range texts {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return Guard{}, fmt.Errorf("%q is no network such as 10.0.0.0/8 or fd00::/8: %w", text, err)
			}
			*list = append(*list, prefix.Masked())
		}
	}
	return g, nil
}

// Refused is the error for a refused connection.
type Refused struct {
	Address netip.Addr
	Kind    string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("it is at %s, and imports must not call %s", r.Address, r.Kind)
}

// Control is for a net.Dialer, which calls it for each address, after every name resolution.
func (g Guard) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the address %q: %w", address, err)
	}
	return g.Judge(to.Addr())
}

// Judge returns a *Refused for a refused address.
func (g Guard) Judge(address netip.Addr) error {
	address = address.WithZone("").Unmap()
	if contains(g.allowed, address) {
		return nil
	}
	if kind := reserved(address); kind != "" {
		return &Refused{address, kind}
	}
	if contains(g.denied, address) {
		return &Refused{address, "networks that the administrator has denied"}
	}
	if inner, ok := embedded(address); ok {
		return g.Judge(inner)
	}
	return nil
}

func contains(prefixes []netip.Prefix, address netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(address) {
			return true
		}
	}
	return false
}

// Metadata services besides the link-local one.
var metadata = []netip.Prefix{netip.MustParsePrefix("fd00:ec2::254/128"), netip.MustParsePrefix("100.100.100.200/32")}

// thisHost is the network that Linux routes to the machine itself.
var thisHost = netip.MustParsePrefix("0.0.0.0/8")

// reserved describes an address that no image server has, "" for others.
func reserved(address netip.Addr) string {
	switch {
	case address.IsLoopback(), address.IsUnspecified(), thisHost.Contains(address):
		return "the worker's own loopback"
	case address.IsLinkLocalUnicast():
		return "link-local addresses, where nodes and clouds have services of their own"
	case contains(metadata, address):
		return "a cloud's metadata service"
	case address.IsMulticast(), address == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "many machines at once"
	}
	return ""
}

// These networks embed IPv4 addresses.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// embedded returns the IPv4 address to which a router may translate an IPv6 address.
func embedded(address netip.Addr) (netip.Addr, bool) {
	if !address.Is6() {
		return netip.Addr{}, false
	}
	bytes := address.As16()
	switch {
	case nat64.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[12:16])), true
	case sixTo4.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[2:6])), true
	}
	return netip.Addr{}, false
}

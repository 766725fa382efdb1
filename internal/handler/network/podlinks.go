package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type facts struct {
	link netlink.Link
	mac  net.HardwareAddr
	mtu  int
	// addresses are global, IPv4 first.
	addresses []netip.Prefix
	routes    []netlink.Route
}

func (f facts) address4() netip.Prefix { return f.first(netip.Addr.Is4) }

// address6 is the first global address. Like address4, it is invalid if there is none.
func (f facts) address6() netip.Prefix { return f.first(netip.Addr.Is6) }

func (f facts) first(is func(netip.Addr) bool) netip.Prefix {
	for _, prefix := range f.addresses {
		if is(prefix.Addr()) {
			return prefix
		}
	}
	return netip.Prefix{}
}

func (f facts) ips() []string {
	var out []string
	for _, prefix := range f.addresses {
		out = append(out, prefix.Addr().String())
	}
	return out
}

func readLink(nl *netlink.Handle, name string) (facts, error) {
	link, err := nl.LinkByName(name)
	if err != nil {
		return facts{}, fmt.Errorf("looking for the pod's interface %s: %w", name, err)
	}
	f := facts{link: link, mac: link.Attrs().HardwareAddr, mtu: link.Attrs().MTU}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addresses, err := complete(func() ([]netlink.Addr, error) { return nl.AddrList(link, family) })
		if err != nil {
			return facts{}, fmt.Errorf("reading the addresses of %s: %w", name, err)
		}
		for _, address := range addresses {
			addr, ok := netip.AddrFromSlice(address.IP)
			if !ok || address.Scope != unix.RT_SCOPE_UNIVERSE {
				continue
			}
			bits, _ := address.Mask.Size()
			f.addresses = append(f.addresses, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	f.routes, err = complete(func() ([]netlink.Route, error) {
		return nl.RouteListFiltered(netlink.FAMILY_V4,
			&netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return facts{}, fmt.Errorf("reading the routes of %s: %w", name, err)
	}
	return f, nil
}

// mac may be nil.
func ensureBridge(namespace *os.File, nl *netlink.Handle, name string, mac net.HardwareAddr, mtu int) (netlink.Link, error) {
	if err := inside(namespace, bridgeOnly); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.HardwareAddr = mac
	// Without a querier, snooping would lose the guest's multicast.
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := nl.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making bridge %s: %w", name, err)
	}
	link, err := nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("looking for bridge %s: %w", name, err)
	}
	// Otherwise the bridge takes the MTU of its smallest port.
	if link.Attrs().MTU != mtu {
		if err := nl.LinkSetMTU(link, mtu); err != nil {
			return nil, fmt.Errorf("setting the MTU of bridge %s to %d: %w", name, mtu, err)
		}
	}
	return link, nil
}

// bridgeOnly keeps a bridge's frames from the rules for IP packets, in the calling thread's namespace: they would
// translate, and so lose, a guest's packets to itself. Nodes enable these rules for their own bridge.
func bridgeOnly() error {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
		if err := setSysctl("bridge/"+name, "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ensureTap makes or finds the persistent tap, and connects it to the bridge unless the guest is still in another pod.
// QEMU's user owns it, so QEMU needs no capability.
func ensureTap(pod Pod, nl *netlink.Handle, p plan, bridge netlink.Link, mtu int) (netlink.Link, error) {
	link, err := nl.LinkByName(p.tap)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		if err := inside(pod.NetNS, func() error { return pod.makeTap(p.tap, p.queues > 1) }); err != nil {
			return nil, fmt.Errorf("making tap %s: %w", p.tap, err)
		}
		link, err = nl.LinkByName(p.tap)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for tap %s: %w", p.tap, err)
	}
	if err := inside(pod.NetNS, func() error { return withoutIPv6(p.tap) }); err != nil {
		return nil, err
	}
	if link.Attrs().MTU != mtu {
		if err := nl.LinkSetMTU(link, mtu); err != nil {
			return nil, fmt.Errorf("setting the MTU of tap %s to %d: %w", p.tap, mtu, err)
		}
	}
	if pod.Awaits && link.Attrs().MasterIndex == 0 {
		return link, switchOn(nl, link)
	}
	return link, enslave(nl, link, bridge)
}

func (p *plan) connect(nl *netlink.Handle) error {
	tap, err := nl.LinkByName(p.tap)
	if err != nil {
		return fmt.Errorf("looking for tap %s: %w", p.tap, err)
	}
	bridge, err := nl.LinkByName(p.bridge)
	if err != nil {
		return fmt.Errorf("looking for bridge %s: %w", p.bridge, err)
	}
	return enslave(nl, tap, bridge)
}

// enslave also switches link and bridge on.
func enslave(nl *netlink.Handle, link, bridge netlink.Link) error {
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := nl.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("connecting %s to bridge %s: %w", link.Attrs().Name, bridge.Attrs().Name, err)
		}
	}
	return switchOn(nl, link, bridge)
}

func switchOn(nl *netlink.Handle, links ...netlink.Link) error {
	for _, l := range links {
		if err := nl.LinkSetUp(l); err != nil {
			return fmt.Errorf("switching %s on: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// withoutIPv6 keeps the kernel from joining the guest's IPv6 network, in the calling thread's namespace.
func withoutIPv6(link string) error {
	const ipv6 = "/proc/sys/net/ipv6"
	if _, err := os.Stat(ipv6); os.IsNotExist(err) {
		return nil // the node has no IPv6 at all
	}
	return setSysctl("ipv6/conf/"+link+"/disable_ipv6", "1")
}

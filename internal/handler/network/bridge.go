package network

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/network/dhcp"
)

// bridgeServerID identifies the DHCP server, which has no address on the pod's network.
var bridgeServerID = netip.MustParseAddr("169.254.75.10")

// macMemory begins the bridge's alias, which stores the pod interface's own MAC after the guest has taken it.
const macMemory = "pod interface's own address: "

// setupBridge gives the guest the pod's place on the network: its MAC and its addresses.
//
//	eth0 (another MAC, silent) --- bridge (silent) --- tap --- guest (eth0's MAC and address)
//
// The addresses and routes also stay on eth0, where the network plugin put them and the next Setup reads them. A
// bridge port passes nothing to the pod's IP stack, and without ARP neither eth0 nor the bridge claims the guest's
// address.
func setupBridge(pod Pod, p plan, log logr.Logger) (Interface, []server, error) {
	made, outside, tap, err := connectBridge(pod, p)
	if err != nil {
		return Interface{}, nil, err
	}
	mac, err := net.ParseMAC(made.MAC)
	if err != nil {
		return Interface{}, nil, err
	}
	lease, err := p.lease(pod, mac, outside.mtu)
	if err != nil {
		return Interface{}, nil, err
	}
	lease.Address = outside.address4()
	if !lease.Address.IsValid() {
		return made, nil, nil // a network without address management
	}
	lease.ServerID = bridgeServerID
	lease.Routes = bridgedRoutes(outside)
	if err := dropDHCPRequests(pod.NetNS, p.tap); err != nil {
		return Interface{}, nil, err
	}
	frames, err := openFrames(pod.NetNS, tap)
	if err != nil {
		return Interface{}, nil, err
	}
	return made, []server{dhcp.Serve(frames, lease, log)}, nil
}

func connectBridge(pod Pod, p plan) (made Interface, outside facts, tap netlink.Link, err error) {
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return made, outside, nil, err
	}
	defer nl.Close()
	if outside, err = readLink(nl, p.podInterface); err != nil {
		return made, outside, nil, p.missing(err)
	}
	bridge, err := ensureBridge(pod.NetNS, nl, p.bridge, nil, outside.mtu)
	if err != nil {
		return made, outside, nil, err
	}
	if err := inside(pod.NetNS, func() error { return withoutIPv6(p.bridge) }); err != nil {
		return made, outside, nil, err
	}
	mac, err := detachFromPod(nl, outside, bridge)
	if err != nil {
		return made, outside, nil, err
	}
	if p.macChosen {
		mac = p.mac
	}
	if tap, err = ensureTap(pod, nl, p, bridge, outside.mtu); err != nil {
		return made, outside, nil, err
	}
	return Interface{
		Name: p.name, Tap: p.tap, MAC: mac.String(), MTU: outside.mtu, Queues: p.queues,
		IPs: outside.ips(), Way: p.way(), PodInterface: p.podInterface, Stays: p.stays,
	}, outside, tap, nil
}

func (p *plan) way() Way {
	if p.secondary {
		return NoWay
	}
	return OnPodNetwork
}

func (p *plan) missing(err error) error {
	var none netlink.LinkNotFoundError
	if !p.secondary || !errors.As(err, &none) {
		return err
	}
	return fmt.Errorf("the pod has no interface %s on the network %s: Multus, which makes it, did not run when the pod was started; install it and start the VMI again",
		p.podInterface, p.attachment)
}

// detachFromPod removes the interface from the pod's network stack, and returns its original MAC. The IP addresses
// stay (decision 051).
func detachFromPod(nl *netlink.Handle, outside facts, bridge netlink.Link) (net.HardwareAddr, error) {
	own, err := saveMAC(nl, outside, bridge)
	if err != nil {
		return nil, err
	}
	for _, link := range []netlink.Link{outside.link, bridge} {
		if err := nl.LinkSetARPOff(link); err != nil {
			return nil, fmt.Errorf("silencing %s: %w", link.Attrs().Name, err)
		}
	}
	if outside.mac.String() == own.String() {
		other := make(net.HardwareAddr, 6)
		if _, err := rand.Read(other); err != nil {
			return nil, fmt.Errorf("choosing a MAC address: %w", err)
		}
		other[0] = other[0]&^1 | 2 // locally administered and unicast
		// Switching the link off would lose its routes.
		if err := nl.LinkSetHardwareAddr(outside.link, other); err != nil {
			return nil, fmt.Errorf("giving %s another MAC address than the guest's: %w", outside.link.Attrs().Name, err)
		}
	}
	return own, enslave(nl, outside.link, bridge)
}

// saveMAC stores the MAC of the pod's interface in the bridge's alias, or reads it there.
func saveMAC(nl *netlink.Handle, outside facts, bridge netlink.Link) (net.HardwareAddr, error) {
	if written, found := strings.CutPrefix(bridge.Attrs().Alias, macMemory); found {
		mac, err := net.ParseMAC(written)
		if err != nil {
			return nil, fmt.Errorf("reading the alias of bridge %s: %w", bridge.Attrs().Name, err)
		}
		return mac, nil
	}
	if err := nl.LinkSetAlias(bridge, macMemory+outside.mac.String()); err != nil {
		return nil, fmt.Errorf("writing the alias of bridge %s: %w", bridge.Attrs().Name, err)
	}
	return outside.mac, nil
}

// bridgedRoutes leaves out the route to the pod's own network, which follows from the address.
func bridgedRoutes(outside facts) []dhcp.Route {
	var routes []dhcp.Route
	for _, route := range outside.routes {
		if route.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		r := dhcp.Route{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
		if route.Dst != nil {
			addr, ok := netip.AddrFromSlice(route.Dst.IP)
			bits, _ := route.Dst.Mask.Size()
			if !ok {
				continue
			}
			r.Destination = netip.PrefixFrom(addr.Unmap(), bits)
		}
		if gateway, ok := netip.AddrFromSlice(route.Gw); ok {
			r.Gateway = gateway.Unmap()
		}
		routes = append(routes, r)
	}
	return routes
}

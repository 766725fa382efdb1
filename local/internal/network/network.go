// Package network creates the networks of a cluster: the host's bridge, a veth pair per node, routes,
// masquerading, and the lans between nodes. It must remove what it creates on the host; interfaces in a node's
// namespace vanish with it.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// NodeLink is a node's interface.
const NodeLink = "eth0"

// Taken lists the destinations of the host's routes.
func Taken() ([]netip.Prefix, error) {
	routes, err := complete(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the host's routes: %w", err)
	}
	var taken []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if p, err := netip.ParsePrefix(r.Dst.String()); err == nil {
			taken = append(taken, p)
		}
	}
	return taken, nil
}

// ChooseSubnet gives a new cluster an unused range. An existing cluster keeps its own, and fails if another
// network has taken it.
func ChooseSubnet(c layout.Cluster, found bool) (layout.Cluster, error) {
	taken, err := Taken()
	if err != nil {
		return c, err
	}
	if !found {
		c.Net, err = layout.ChooseNet(c, taken)
		return c, err
	}
	if Present(c) {
		return c, nil
	}
	if conflict := layout.Conflict(c.Net, taken); conflict != nil {
		return c, fmt.Errorf("starting cluster %s: its subnet %s overlaps %s, which the host uses now; end what uses it, or begin anew with: drydock down --purge", c.Name, c.Subnet(), conflict)
	}
	return c, nil
}

// MTU returns the MTU of the host's default route, at most 1500 and 1500 without one.
func MTU() (int, error) {
	routes, err := complete(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 0, fmt.Errorf("listing the host's routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && r.Dst.IP != nil && !r.Dst.IP.IsUnspecified() || r.LinkIndex == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err == nil && link.Attrs().MTU < 1500 {
			return link.Attrs().MTU, nil
		}
	}
	return 1500, nil
}

// EnsureHost creates the bridge with the host's address, and the firewall rules that let only the
// cluster's packets through.
func EnsureHost(c layout.Cluster, mtu int) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: c.Bridge(), MTU: mtu}}
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making the bridge %s: %w", c.Bridge(), err)
	}
	link, err := netlink.LinkByName(c.Bridge())
	if err != nil {
		return fmt.Errorf("finding the bridge %s: %w", c.Bridge(), err)
	}
	addr := &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(c.HostIP(), c.MachineNet().Bits()))}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("giving the bridge %s its address: %w", c.Bridge(), err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing the bridge %s up: %w", c.Bridge(), err)
	}
	for _, node := range c.Nodes {
		if err := addRoute(netlink.RouteReplace, link, c.NodePodNet(node), c.NodeIP(node)); err != nil {
			return err
		}
	}
	if len(c.Nodes) > 0 {
		// Service addresses work from the host, too: the first node translates them.
		if err := addRoute(netlink.RouteReplace, link, c.ServiceNet(), c.NodeIP(c.Nodes[0])); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("turning forwarding on: %w", err)
	}
	return openFirewall(c)
}

// AttachNode connects a node, whose init is pid, to the bridge.
func AttachNode(c layout.Cluster, node string, pid, mtu int) error {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("opening the network namespace of %s: %w", node, err)
	}
	defer func() { _ = ns.Close() }() // closing the descriptor changes nothing
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("entering the network namespace of %s: %w", node, err)
	}
	defer inside.Close()
	if _, err := inside.LinkByName(NodeLink); err != nil {
		if err := addCable(c, node, ns, mtu); err != nil {
			return err
		}
	}
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback of %s: %w", node, err)
	}
	if err := inside.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing the loopback of %s up: %w", node, err)
	}
	link, err := inside.LinkByName(NodeLink)
	if err != nil {
		return fmt.Errorf("finding the interface of %s: %w", node, err)
	}
	addr := &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(c.NodeIP(node), c.MachineNet().Bits()))}
	if err := inside.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("giving %s its address: %w", node, err)
	}
	if err := inside.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing the interface of %s up: %w", node, err)
	}
	if err := addRoute(inside.RouteReplace, link, netip.PrefixFrom(netip.IPv4Unspecified(), 0), c.HostIP()); err != nil {
		return err
	}
	for _, other := range c.Nodes {
		if other == node {
			continue
		}
		if err := addRoute(inside.RouteReplace, link, c.NodePodNet(other), c.NodeIP(other)); err != nil {
			return err
		}
	}
	return nil
}

func addCable(c layout.Cluster, node string, ns netns.NsHandle, mtu int) error {
	bridge, err := netlink.LinkByName(c.Bridge())
	if err != nil {
		return fmt.Errorf("finding the bridge %s: %w", c.Bridge(), err)
	}
	// An interrupted start may have left a pair whose other end is in no node.
	if err := deleteLink(c.Veth(node)); err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: c.Veth(node), MTU: mtu, MasterIndex: bridge.Attrs().Index},
		PeerName:      NodeLink,
		PeerNamespace: netlink.NsFd(ns),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making the cable of %s: %w", node, err)
	}
	link, err := netlink.LinkByName(c.Veth(node))
	if err != nil {
		return fmt.Errorf("finding the cable of %s: %w", node, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing the cable of %s up: %w", node, err)
	}
	return nil
}

// Remove removes the cluster's interfaces and rules from the host.
func Remove(c layout.Cluster) error {
	var errs []error
	links, err := complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing the host's interfaces: %w", err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == c.Bridge() || strings.HasPrefix(name, c.Bridge()+".") {
			errs = append(errs, deleteLink(name))
		}
	}
	return errors.Join(append(errs, closeFirewall(c))...)
}

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("deleting the interface %s: %w", name, err)
	}
	return nil
}

func addRoute(replace func(*netlink.Route) error, link netlink.Link, to netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipnet(to), Gw: via.AsSlice()}
	if err := replace(route); err != nil {
		return fmt.Errorf("setting the route to %s by way of %s: %w", to, via, err)
	}
	return nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Present reports whether the bridge exists.
func Present(c layout.Cluster) bool {
	_, err := netlink.LinkByName(c.Bridge())
	return err == nil
}

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// Lans are bridges of every node beside the pods'. A veth pair between each two nodes makes those of one name one
// layer 2 network, which carries all VLAN tags if the kernel can (decision 410).
var Lans = []string{"lan1", "lan2", "lan3", "lan4"}

// The tagged VLANs of a cable. VLAN 1 is untagged.
const firstVLAN, lastVLAN = 2, 4094

// Member is a running node.
type Member struct {
	Node string
	PID  int
}

// ConnectLans creates a node's lans and connects them to those of other nodes. It skips a node that
// has ended: that one connects itself when it starts.
func ConnectLans(c layout.Cluster, node Member, others []Member) error {
	inside, err := enter(node)
	if err != nil {
		return err
	}
	defer inside.Close()
	for _, lan := range Lans {
		if err := inside.ensureLan(lan); err != nil {
			return fmt.Errorf("making %s of %s: %w", lan, node.Node, err)
		}
	}
	for _, other := range others {
		far, err := enter(other)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = layCables(c, inside, far)
		far.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

type nodeNet struct {
	*netlink.Handle
	node string
	ns   netns.NsHandle
}

func enter(node Member) (*nodeNet, error) {
	ns, err := netns.GetFromPid(node.PID)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace of %s: %w", node.Node, err)
	}
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("entering the network namespace of %s: %w", node.Node, err), ns.Close())
	}
	return &nodeNet{Handle: handle, node: node.Node, ns: ns}, nil
}

// Close closes the handles, which does not change the network.
func (m *nodeNet) Close() {
	m.Handle.Close()
	_ = m.ns.Close()
}

// The node itself is not a member of the bridge.
func (m *nodeNet) ensureLan(lan string) error {
	filter := true
	attributes := netlink.NewLinkAttrs()
	attributes.Name = lan
	err := m.LinkAdd(&netlink.Bridge{LinkAttrs: attributes, VlanFiltering: &filter})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without VLAN filtering; a plugin that needs VLANs gets the same error
		err = m.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	link, err := m.LinkByName(lan)
	if err != nil {
		return err
	}
	if filters(link) {
		if err := m.BridgeVlanDel(link, 1, true, true, true, false); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("taking the node out of it: %w", err)
		}
	}
	return m.LinkSetUp(link)
}

func filters(link netlink.Link) bool {
	bridge, ok := link.(*netlink.Bridge)
	return ok && bridge.VlanFiltering != nil && *bridge.VlanFiltering
}

func layCables(c layout.Cluster, m, far *nodeNet) error {
	for _, lan := range Lans {
		near, end := cableEnd(c, lan, far.node), cableEnd(c, lan, m.node)
		err := layCable(m, far, near, end)
		if err == nil {
			err = errors.Join(m.plug(near, lan), far.plug(end, lan))
		}
		if err != nil {
			return fmt.Errorf("connecting %s of %s and %s: %w", lan, m.node, far.node, err)
		}
	}
	return nil
}

// cableEnd returns the name of the interface, on any node, that leads to a node.
func cableEnd(c layout.Cluster, lan, to string) string {
	return fmt.Sprintf("%s.%d", lan, c.Index(to)+1)
}

func layCable(near, far *nodeNet, nearEnd, farEnd string) error {
	_, nearErr := near.LinkByName(nearEnd)
	_, farErr := far.LinkByName(farEnd)
	if nearErr == nil && farErr == nil {
		return nil
	}
	// The pair to a node's previous life is removed with its namespace, but not at once.
	if err := errors.Join(near.unplug(nearEnd), far.unplug(farEnd)); err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = nearEnd
	return near.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: farEnd, PeerNamespace: netlink.NsFd(far.ns)})
}

func (m *nodeNet) unplug(end string) error {
	link, err := m.LinkByName(end)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = m.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the cable %s of %s: %w", end, m.node, err)
	}
	return nil
}

// plug makes an interface a port of a lan. The ports of cables are isolated from each other: the
// sender's node reaches every other node directly, and a forwarded frame would loop forever.
func (m *nodeNet) plug(end, lan string) error {
	bridge, err := m.LinkByName(lan)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", lan, m.node, err)
	}
	port, err := m.LinkByName(end)
	if err != nil {
		return fmt.Errorf("finding the cable %s of %s: %w", end, m.node, err)
	}
	err = errors.Join(m.LinkSetMaster(port, bridge), m.LinkSetIsolated(port, true))
	if err == nil && filters(bridge) {
		err = m.BridgeVlanAddRange(port, firstVLAN, lastVLAN, false, false, false, true)
	}
	if err == nil {
		err = m.LinkSetUp(port)
	}
	if err != nil {
		return fmt.Errorf("plugging the cable %s of %s: %w", end, m.node, err)
	}
	return nil
}

// KeepOutOfLans makes the node neither answer nor route on its lans, which exist. Packets between a lan's ports pass
// the node's netfilter rules for pods; without connection tracking none of them applies.
func KeepOutOfLans() error {
	for _, lan := range Lans {
		for path, value := range map[string]string{
			"ipv4/conf/" + lan + "/arp_ignore":   "1", // no ARP replies for other interfaces
			"ipv4/conf/" + lan + "/forwarding":   "0",
			"ipv6/conf/" + lan + "/disable_ipv6": "1",
		} {
			err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0o644)
			if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(path, "ipv6/") {
				continue // a kernel without IPv6
			}
			if err != nil {
				return fmt.Errorf("keeping the node out of %s: %w", lan, err)
			}
		}
	}
	return nft(fmt.Sprintf(`table inet drydock-lans
delete table inet drydock-lans
table inet drydock-lans {
	chain prerouting {
		type filter hook prerouting priority raw;
		iifname { %s } notrack
	}
}
`, strings.Join(Lans, ", ")))
}

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

// Lans are the bridges that every node has beside that of its pods. The bridges of one name
// are one network of layer 2, as a VLAN of a switch is: each two nodes have a cable between theirs.
// Where the kernel filters VLANs, each carries all their tags, too. See decision 410.
var Lans = []string{"lan1", "lan2", "lan3", "lan4"}

// The VLANs that a cable carries with their tags. VLAN 1 goes without.
const firstVLAN, lastVLAN = 2, 4094

// Member is a node that runs.
type Member struct {
	Node string
	// PID is the process number of its init.
	PID int
}

// ConnectLans makes a node's lans and connects them with those of other nodes. A node that has
// ended meanwhile is left out: it connects itself when it starts.
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

// nodeNet is the way into a node's network namespace.
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

// Close lets go of descriptors to look through.
func (m *nodeNet) Close() {
	m.Handle.Close()
	_ = m.ns.Close()
}

// ensureLan makes a bridge that the node itself is not on.
func (m *nodeNet) ensureLan(lan string) error {
	filter := true
	attributes := netlink.NewLinkAttrs()
	attributes.Name = lan
	err := m.LinkAdd(&netlink.Bridge{LinkAttrs: attributes, VlanFiltering: &filter})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without VLANs: a plugin that asks for one gets the same error
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

// filters reports whether a bridge filters VLANs.
func filters(link netlink.Link) bool {
	bridge, ok := link.(*netlink.Bridge)
	return ok && bridge.VlanFiltering != nil && *bridge.VlanFiltering
}

// layCables lays the cables between two nodes that are not there.
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

// cableEnd is the name of the end, on any node, of the cable to a node.
func cableEnd(c layout.Cluster, lan, to string) string {
	return fmt.Sprintf("%s.%d", lan, c.Index(to)+1)
}

// layCable makes a veth pair with an end on each of two nodes.
func layCable(near, far *nodeNet, nearEnd, farEnd string) error {
	_, nearErr := near.LinkByName(nearEnd)
	_, farErr := far.LinkByName(farEnd)
	if nearErr == nil && farErr == nil {
		return nil
	}
	// The end of a cable to a node's last life goes with that, but not at once.
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

// plug makes the end of a cable a port of a lan. Nothing goes from one cable to another: the
// sender's node has a cable to every other node, and a frame would go round for ever.
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

// KeepOutOfLans is called on a node whose lans were made. The node gives no answers there and
// routes nothing from there. Packets between a lan's ports pass the node's rules, which are about
// pods: without a connection that the kernel tracks, none of them applies, such as the translation
// of service addresses.
func KeepOutOfLans() error {
	for _, lan := range Lans {
		for path, value := range map[string]string{
			"ipv4/conf/" + lan + "/arp_ignore":   "1", // no answer for addresses of other interfaces
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
	return nft(lansTable())
}

func lansTable() string {
	return fmt.Sprintf(`table inet drydock-lans
delete table inet drydock-lans
table inet drydock-lans {
	chain prerouting {
		type filter hook prerouting priority raw;
		iifname { %s } notrack
	}
}
`, strings.Join(Lans, ", "))
}

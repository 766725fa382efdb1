package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const table = "drydock"

const (
	protocolTCP = unix.IPPROTO_TCP
	protocolUDP = unix.IPPROTO_UDP
)

type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	device   string
	rules    []rule
}

type rule []expr.Any

type translation struct {
	bridge        string
	router, guest netip.Addr
	pod           []netip.Addr
	// ports lead to the guest; none means all.
	ports []port
}

func translate(namespace *os.File, p plan, outside facts) error {
	families := map[nftables.TableFamily]translation{}
	for _, prefix := range outside.addresses {
		family, inner := nftables.TableFamilyIPv4, p.subnet4
		if prefix.Addr().Is6() {
			family, inner = nftables.TableFamilyIPv6, p.subnet6
		}
		t, known := families[family]
		if !known {
			t = translation{bridge: p.bridge, router: inner.router, guest: inner.guest, ports: p.ports}
		}
		t.pod = append(t.pod, prefix.Addr())
		families[family] = t
	}
	for family, t := range families {
		if err := apply(namespace, family, t.chains()); err != nil {
			return fmt.Errorf("translating the guest's addresses: %w", err)
		}
	}
	return dropDHCPRequests(namespace, p.tap)
}

// dropDHCPRequests drops the guest's DHCP requests after Drydock's server has seen them: nobody else may answer.
func dropDHCPRequests(namespace *os.File, tap string) error {
	const serverPort = 67
	overIPv4 := rule{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		equal(expr.CmpOpEq, binaryutil.BigEndian.PutUint16(unix.ETH_P_IP)),
	}
	err := apply(namespace, nftables.TableFamilyNetdev, []chain{{
		name: tap, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookIngress, priority: nftables.ChainPriorityFilter,
		device: tap,
		rules:  []rule{join(overIPv4, toPort(port{protocolUDP, serverPort, serverPort}), verdict(expr.VerdictDrop))},
	}})
	if err != nil {
		return fmt.Errorf("keeping the guest's DHCP requests in its pod: %w", err)
	}
	return nil
}

// deleteUntranslated deletes the kernel's connection entries that lead to the pod itself. The kernel tracks connections
// from the first rule on but activates the rules later: a peer that keeps sending UDP from one port in between would
// never reach the guest.
func deleteUntranslated(namespace *os.File, outside facts) error {
	connections, err := netlink.NewHandleAt(netns.NsHandle(namespace.Fd()), unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening conntrack in the pod's network namespace: %w", err)
	}
	defer connections.Close()
	var errs []error
	for _, prefix := range outside.addresses {
		family := netlink.InetFamily(unix.AF_INET)
		if prefix.Addr().Is6() {
			family = unix.AF_INET6
		}
		_, err := complete(func() (uint, error) {
			return connections.ConntrackDeleteFilters(netlink.ConntrackTable, family, untranslated(prefix.Addr()))
		})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forgetting the connections that lead to the pod itself (the node's kernel needs nf_conntrack_netlink): %w", err)
	}
	return nil
}

// untranslated matches connections to the pod's address that lead to the pod itself.
type untranslated netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (u untranslated) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	pod := netip.Addr(u).AsSlice()
	return flow.Forward.DstIP.Equal(pod) && flow.Reverse.SrcIP.Equal(pod)
}

func (t translation) chains() []chain {
	// The guest's connections get the pod's address, those from the pod to the guest the router's.
	outbound := []rule{join(source(expr.CmpOpEq, t.guest), rule{&expr.Masq{}})}
	for _, addr := range t.local() {
		outbound = append(outbound, join(outOf(t.bridge), source(expr.CmpOpEq, addr), t.nat(expr.NATTypeSourceNAT, t.router)))
	}
	// Only packets that were addressed to the pod reach the guest, and only its own address leaves it.
	guard := []rule{
		join(metaName(expr.MetaKeyIIFNAME, t.bridge), source(expr.CmpOpNeq, t.guest), verdict(expr.VerdictDrop)),
		join(outOf(t.bridge), connection(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), verdict(expr.VerdictAccept)),
		join(outOf(t.bridge), connection(expr.CtKeySTATUS, destinationTranslated), verdict(expr.VerdictAccept)),
		join(outOf(t.bridge), verdict(expr.VerdictDrop)),
	}
	return []chain{
		{name: "prerouting", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: nftables.ChainPriorityNATDest, rules: t.inbound(t.pod)},
		{name: "output", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookOutput, priority: nftables.ChainPriorityNATDest, rules: t.inbound(t.local())},
		{name: "postrouting", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityNATSource, rules: outbound},
		{name: "forward", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: nftables.ChainPriorityFilter, rules: guard},
	}
}

func (t translation) local() []netip.Addr {
	if t.guest.Is6() {
		return t.pod // the kernel never sends ::1 out of the loopback interface
	}
	return append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, t.pod...)
}

func (t translation) inbound(to []netip.Addr) []rule {
	var rules []rule
	for _, addr := range to {
		if len(t.ports) == 0 {
			rules = append(rules, join(destination(addr), t.toGuest()))
		}
		for _, p := range t.ports {
			rules = append(rules, join(destination(addr), toPort(p), t.toGuest()))
		}
	}
	return rules
}

// destinationTranslated is the kernel's IPS_DST_NAT.
const destinationTranslated = 1 << 5

func (t translation) toGuest() rule { return t.nat(expr.NATTypeDestNAT, t.guest) }

func (t translation) nat(kind expr.NATType, addr netip.Addr) rule {
	family := uint32(unix.NFPROTO_IPV4)
	if addr.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return rule{
		&expr.Immediate{Register: 1, Data: addr.AsSlice()},
		&expr.NAT{Type: kind, Family: family, RegAddrMin: 1},
	}
}

// apply replaces the chains of a family in one transaction: no rule is ever missing, and connections keep their
// translation.
func apply(namespace *os.File, family nftables.TableFamily, chains []chain) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(namespace.Fd())))
	if err != nil {
		return fmt.Errorf("opening nftables in the pod's network namespace: %w", err)
	}
	t := conn.AddTable(&nftables.Table{Name: table, Family: family})
	for _, c := range chains {
		made := conn.AddChain(&nftables.Chain{
			Name: c.name, Table: t, Type: c.kind, Hooknum: c.hook, Priority: c.priority, Device: c.device,
		})
		conn.FlushChain(made)
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: t, Chain: made, Exprs: r})
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("writing nftables rules (the node's kernel needs nf_tables with nat, and netdev for ingress): %w", err)
	}
	return nil
}

func join(parts ...rule) rule {
	var out rule
	for _, part := range parts {
		out = append(out, part...)
	}
	return out
}

func verdict(kind expr.VerdictKind) rule { return rule{&expr.Verdict{Kind: kind}} }

func outOf(link string) rule { return metaName(expr.MetaKeyOIFNAME, link) }

func metaName(key expr.MetaKey, link string) rule {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return rule{&expr.Meta{Key: key, Register: 1}, equal(expr.CmpOpEq, name)}
}

func equal(op expr.CmpOp, data []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: 1, Data: data}
}

func source(op expr.CmpOp, addr netip.Addr) rule { return header(op, addr, 12, 8) }
func destination(addr netip.Addr) rule           { return header(expr.CmpOpEq, addr, 16, 24) }

func header(op expr.CmpOp, addr netip.Addr, offset4, offset6 uint32) rule {
	offset := offset4
	if addr.Is6() {
		offset = offset6
	}
	data := addr.AsSlice()
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(data))}
	return rule{load, equal(op, data)}
}

func toPort(p port) rule {
	return rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		equal(expr.CmpOpEq, []byte{p.protocol}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		equal(expr.CmpOpGte, binaryutil.BigEndian.PutUint16(p.first)),
		equal(expr.CmpOpLte, binaryutil.BigEndian.PutUint16(p.last)),
	}
}

func connection(key expr.CtKey, bits uint32) rule {
	return rule{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		equal(expr.CmpOpNeq, make([]byte, 4)),
	}
}

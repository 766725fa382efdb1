package network

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"
)

const (
	nodeAddress6 = "fd00:7::1"
	podAddress6  = "fd00:7::5"
)

func TestMasqueradeCarriesIPv6(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade(v1.Port{Port: 80}))
	addAddress(t, handle(t, w.node), "veth0", nodeAddress6+"/64")
	pod := handle(t, w.pod)
	eth0 := addAddress(t, pod, podInterface, podAddress6+"/64")
	addRoute(t, pod, eth0, "::/0", nodeAddress6)

	made := w.setup(t, w.manager)
	if len(made.IPs) != 2 || made.IPs[0] != podAddress || made.IPs[1] != podAddress6 {
		t.Errorf("Setup answers addresses %v", made.IPs)
	}
	w.bootGuest(t, made)
	reply := w.lease6(t, made.MAC)
	address := reply.Options.OneIANA().Options.OneAddress()
	if address == nil || address.IPv6Addr.String() != "fd10:0:2::2" {
		t.Fatalf("the guest is told:\n%s", reply.Summary())
	}
	if dns := reply.Options.DNS(); len(dns) != 1 || dns[0].String() != "fd00:96::a" {
		t.Errorf("the guest is told DNS servers %v", dns)
	}
	addAddress(t, handle(t, w.guest), guestNIC, "fd10:0:2::2/128")
	awaitRouter(t, w.guest)

	echo(t, w.node, "["+nodeAddress6+"]:5000")
	echo(t, w.guest, "[::]:80")
	echo(t, w.guest, "[::]:81")
	out, seen := reach(t, w.guest, "["+nodeAddress6+"]:5000")
	if seen != podAddress6 {
		t.Errorf("the guest's connection comes from %s, want the pod's %s", seen, podAddress6)
	}
	carries(t, out, 1<<20)
	incoming, seen := reach(t, w.node, "["+podAddress6+"]:80")
	if seen != nodeAddress6 {
		t.Errorf("a connection to the guest comes from %s", seen)
	}
	carries(t, incoming, 1<<20)
	if conn, err := dial(t, w.node, "tcp", "["+podAddress6+"]:81"); err == nil {
		t.Errorf("a port that is not declared answers: %v", conn.RemoteAddr())
	}
}

func (w *world) lease6(t *testing.T, mac string) *dhcpv6.Message {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	check(t, err)
	source := linkLocal(t, w.guest)
	var client *net.UDPConn
	in(t, w.guest, func() error {
		var err error
		client, err = net.ListenUDP("udp6", &net.UDPAddr{IP: source, Port: 546, Zone: guestNIC})
		return err
	})
	defer func() { _ = client.Close() }()
	solicit, err := dhcpv6.NewSolicit(hw, dhcpv6.WithRapidCommit)
	check(t, err)
	buffer := make([]byte, 2000)
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); {
		_, err := client.WriteTo(solicit.ToBytes(), &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: 547, Zone: guestNIC})
		check(t, err)
		check(t, client.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		n, _, err := client.ReadFrom(buffer)
		if os.IsTimeout(err) {
			continue
		}
		check(t, err)
		reply, err := dhcpv6.MessageFromBytes(buffer[:n])
		check(t, err)
		if reply.MessageType == dhcpv6.MessageTypeReply && reply.TransactionID == solicit.TransactionID {
			return reply
		}
	}
	t.Fatal("nobody answered the solicitation")
	return nil
}

func linkLocal(t *testing.T, guest *os.File) net.IP {
	t.Helper()
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	namespace := netns.NsHandle(guest.Fd())
	check(t, netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{Namespace: &namespace, ListExisting: true}))
	defer close(done)
	deadline := time.After(soon)
	for {
		select {
		case update := <-updates:
			if ip := update.LinkAddress.IP; ip.IsLinkLocalUnicast() && update.NewAddr && update.Flags&unix.IFA_F_TENTATIVE == 0 {
				return ip
			}
		case <-deadline:
			t.Fatal("the guest has no link-local address")
		}
	}
}

func awaitRouter(t *testing.T, guest *os.File) {
	t.Helper()
	updates, done := make(chan netlink.RouteUpdate), make(chan struct{})
	namespace := netns.NsHandle(guest.Fd())
	check(t, netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &namespace, ListExisting: true}))
	defer close(done)
	deadline := time.After(soon)
	for {
		select {
		case route := <-updates:
			if route.Gw.String() == routerLinkLocal.String() && route.Protocol == unix.RTPROT_RA {
				return
			}
		case <-deadline:
			t.Fatal("the guest learned of no router")
		}
	}
}

package network

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/nftables"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	v1 "kubevirt.io/api/core/v1"
)

func masquerade(ports ...v1.Port) v1.Interface {
	return v1.Interface{
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
		Ports:                  ports,
	}
}

func TestMasqueradeTellsTheGuestItsNetwork(t *testing.T) {
	t.Parallel()
	iface := masquerade()
	iface.DHCPOptions = &v1.DHCPOptions{
		BootFileName: "pxe.0", TFTPServerName: "tftp.example", NTPServers: []string{"192.0.2.123"},
		PrivateOptions: []v1.DHCPPrivateOptions{{Option: 240, Value: "private"}},
	}
	w := newWorld(t, iface)
	w.vmi.Spec.Subdomain = "sub"
	made := w.setup(t, w.manager)
	if made.PodInterface != "eth0" || made.MTU != podMTU || made.Queues != 1 || len(made.IPs) != 1 || made.IPs[0] != podAddress {
		t.Errorf("Setup answers %+v", made)
	}
	ack := w.bootGuest(t, made)
	for _, c := range []struct{ what, got, want string }{
		{"address", ack.YourIPAddr.String(), "10.0.2.2"},
		{"mask", net.IP(ack.SubnetMask()).String(), "255.255.255.0"},
		{"router", ack.Router()[0].String(), "10.0.2.1"},
		{"server", ack.ServerIdentifier().String(), "10.0.2.1"},
		{"DNS", ack.DNS()[0].String(), "10.96.0.10"},
		{"host name", ack.HostName(), "testvmi"},
		{"domain", ack.DomainName(), "sub.testns.svc.cluster.local"},
		{"search", ack.DomainSearch().String(), "[sub.testns.svc.cluster.local testns.svc.cluster.local svc.cluster.local cluster.local]"},
		{"boot file", ack.BootFileNameOption(), "pxe.0"},
		{"boot file of the header", ack.BootFileName, "pxe.0"},
		{"TFTP server", ack.TFTPServerName(), "tftp.example"},
		{"NTP server", ack.NTPServers()[0].String(), "192.0.2.123"},
		{"option 240", string(ack.Options.Get(dhcpv4.GenericOptionCode(240))), "private"},
		{"MTU", string(ack.Options.Get(dhcpv4.OptionInterfaceMTU)), string([]byte{podMTU >> 8, podMTU & 0xff})},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
	if len(ack.DNS()) != 1 {
		t.Errorf("a guest without IPv6 is told DNS servers %v", ack.DNS())
	}
}

func TestMasqueradeCarriesConnectionsOutAndIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	w.bootGuest(t, w.setup(t, w.manager))
	echo(t, w.node, nodeAddress+":5000")
	echo(t, w.guest, ":80")

	out, seen := reach(t, w.guest, nodeAddress+":5000")
	if seen != podAddress {
		t.Errorf("the guest's connection comes from %s, want the pod's %s", seen, podAddress)
	}
	carries(t, out, 1<<20)
	if _, seen := reach(t, w.guest, nodeAddress+":5000"); seen != podAddress {
		t.Errorf("a second connection comes from %s", seen)
	}
	incoming, seen := reach(t, w.node, podAddress+":80")
	if seen != nodeAddress {
		t.Errorf("a connection to the guest comes from %s, want the client's %s", seen, nodeAddress)
	}
	carries(t, incoming, 1<<20)
	for _, address := range []string{"127.0.0.1:80", podAddress + ":80"} {
		conn, seen := reach(t, w.pod, address)
		if seen != "10.0.2.1" {
			t.Errorf("a connection from within the pod to %s comes from %s, want the router", address, seen)
		}
		carries(t, conn, 1000)
	}
	itself, seen := reach(t, w.guest, podAddress+":80")
	if seen != "10.0.2.1" {
		t.Errorf("the guest's connection to itself comes from %s, want the router", seen)
	}
	carries(t, itself, 1000)
}

func TestMasqueradeOpensDeclaredPortsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade(v1.Port{Port: 80}, v1.Port{Port: 53, Protocol: "UDP"}))
	w.bootGuest(t, w.setup(t, w.manager))
	for _, port := range []string{":80", ":81"} {
		echo(t, w.guest, port)
	}
	udpEcho(t, w.guest, ":53")
	udpEcho(t, w.guest, ":54")

	if _, seen := reach(t, w.node, podAddress+":80"); seen != nodeAddress {
		t.Errorf("a connection to the guest comes from %s", seen)
	}
	if _, err := dialFor(t, w.node, "tcp", podAddress+":81", soon); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that is not declared: got %v, want it refused", err)
	}
	if !udpAnswers(t, w.node, podAddress+":53", soon) {
		t.Error("a declared UDP port does not answer")
	}
	if udpAnswers(t, w.node, podAddress+":54", never) {
		t.Error("a UDP port that is not declared answers")
	}
	// Another host on the pod's network could address the guest's own network.
	node := handle(t, w.node)
	veth, err := node.LinkByName("veth0")
	check(t, err)
	addRoute(t, node, veth, "10.0.2.0/24", podAddress)
	for _, port := range []string{"80", "81"} {
		if conn, err := dial(t, w.node, "tcp", "10.0.2.2:"+port); err == nil {
			t.Errorf("the guest answers at its own address: %v", conn.RemoteAddr())
		}
	}
}

func TestMasqueradeOpensRangesOfPorts(t *testing.T) {
	t.Parallel()
	iface := masquerade()
	iface.PortRanges = []v1.PortRange{{Protocol: "TCP", Start: 300, End: 302}, {Protocol: "UDP", Start: 53, End: 53}}
	w := newWorld(t, iface)
	w.bootGuest(t, w.setup(t, w.manager))
	for _, port := range []string{":299", ":300", ":302", ":303"} {
		echo(t, w.guest, port)
	}
	udpEcho(t, w.guest, ":53")

	for _, port := range []string{":300", ":302"} {
		if _, seen := reach(t, w.node, podAddress+port); seen != nodeAddress {
			t.Errorf("a connection to %s of the guest comes from %s", port, seen)
		}
	}
	for _, port := range []string{":299", ":303"} {
		if _, err := dialFor(t, w.node, "tcp", podAddress+port, soon); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s, outside of the range: got %v, want it refused", port, err)
		}
	}
	if !udpAnswers(t, w.node, podAddress+":53", soon) {
		t.Error("a range of one UDP port does not answer")
	}
}

// TestWhoSendsBeforeTheRulesAreThereReachesTheGuest: the kernel tracks connections from the first written rule on, and
// activates the rules later, all at once. A connection that begins in between leads to the pod, and its sender goes on
// from the same port.
func TestWhoSendsBeforeTheRulesAreThereReachesTheGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	elsewhere := join(destination(netip.MustParseAddr("192.0.2.1")), translation{guest: netip.MustParseAddr("10.0.2.2")}.toGuest())
	check(t, apply(w.pod, nftables.TableFamilyIPv4, []chain{{
		name: "prerouting", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: nftables.ChainPriorityNATDest, rules: []rule{elsewhere},
	}}))
	client, err := dial(t, w.node, "udp", podAddress+":53")
	check(t, err)
	answered := func() bool {
		_, _ = client.Write([]byte("hello")) // it may have got an error that nobody listens
		check(t, client.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		n, err := client.Read(make([]byte, 100))
		return err == nil && n == 5
	}
	if answered() {
		t.Fatal("somebody answers before there is a guest")
	}
	w.bootGuest(t, w.setup(t, w.manager))
	udpEcho(t, w.guest, ":53")
	for deadline := time.Now().Add(soon); !answered(); {
		if time.Now().After(deadline) {
			t.Fatal("the guest does not hear what is sent to it")
		}
	}
}

func TestMasqueradePings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ports []v1.Port
		// guests reports whether the guest answered, and not the pod.
		guests bool
	}{
		"all ports":      {nil, true},
		"declared ports": {[]v1.Port{{Port: 80}}, false},
	} {
		w := newWorld(t, masquerade(c.ports...))
		w.bootGuest(t, w.setup(t, w.manager))
		if !ping(t, w.guest, nodeAddress, soon) {
			t.Errorf("%s: the guest's ping is not answered", name)
		}
		if !ping(t, w.node, podAddress, soon) {
			t.Errorf("%s: a ping is not answered", name)
		}
		in(t, w.guest, func() error { return setSysctl("ipv4/icmp_echo_ignore_all", "1") })
		patience := soon
		if c.guests {
			patience = never
		}
		if answered := ping(t, w.node, podAddress, patience); answered == c.guests {
			t.Errorf("%s: with a guest that answers no ping, answered is %v", name, answered)
		}
	}
}

func TestMasqueradeLetsNoForeignAddressOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	w.bootGuest(t, w.setup(t, w.manager))
	addAddress(t, handle(t, w.guest), guestNIC, "10.0.2.77/24")
	heard := udpEcho(t, w.node, nodeAddress+":5001")
	from := func(address string) {
		in(t, w.guest, func() error {
			conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(address)}}).Dial("udp", nodeAddress+":5001")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte(address))
			return err
		})
	}
	from("10.0.2.77")
	from("10.0.2.2")
	// Frames keep their order, so an earlier one would arrive first.
	select {
	case first := <-heard:
		if first != "10.0.2.2" {
			t.Errorf("a packet from %s came out", first)
		}
	case <-time.After(soon):
		t.Fatal("nothing came out")
	}
}

func TestSetupAgainChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade(v1.Port{Port: 80}))
	made := w.setup(t, w.manager)
	w.bootGuest(t, made)
	echo(t, w.guest, ":80")
	conn, _ := reach(t, w.node, podAddress+":80")
	before := inventory(t, w.pod)

	// A new virt-handler: the old one has ended, and remembers nothing.
	w.manager.Close()
	second := New(testr.New(t))
	t.Cleanup(second.Close)
	if again := w.setup(t, second); again.MAC != made.MAC || again.Tap != made.Tap {
		t.Errorf("the second Setup answers %+v, the first %+v", again, made)
	}
	w.setup(t, second)
	if after := inventory(t, w.pod); after != before {
		t.Errorf("the namespace holds %+v, before %+v", after, before)
	}
	carries(t, conn, 100000)
	if _, seen := reach(t, w.node, podAddress+":80"); seen != nodeAddress {
		t.Errorf("a new connection comes from %s", seen)
	}
	w.lease(t, made.MAC)
	if n := w.answers(t, made.MAC, soon); n != 1 {
		t.Errorf("%d servers answer a discovery", n)
	}
}

func TestTeardownLeavesNothingRunning(t *testing.T) {
	w := newWorld(t, masquerade())
	made := w.setup(t, w.manager)
	w.plugIn(t, made)
	w.manager.Teardown(w.vmi.UID)
	open := descriptors(t)
	for range 3 {
		w.setup(t, w.manager)
		w.manager.Teardown(w.vmi.UID)
	}
	if now := descriptors(t); now > open {
		t.Errorf("%d file descriptors are open, before %d", now, open)
	}
	if n := w.answers(t, made.MAC, never); n != 0 {
		t.Errorf("%d servers answer after Teardown", n)
	}
}

func TestSetupRefusesTheNodesOwnNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	own, err := os.Open("/proc/self/ns/net")
	check(t, err)
	defer own.Close()
	_, err = w.manager.Setup(t.Context(), Pod{NetNS: own}, w.vmi)
	if err == nil || err.Error() != "the pod shares its network namespace with the node; a guest's network must be a pod's own" {
		t.Errorf("Setup in the node's own network answers %v", err)
	}
}

// answers counts the servers that answer one discovery; patience bounds the wait for the first.
func (w *world) answers(t *testing.T, mac string, patience time.Duration) int {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	check(t, err)
	client := w.dhcpClient(t)
	defer func() { _ = client.Close() }()
	discover, err := dhcpv4.NewDiscovery(hw)
	check(t, err)
	_, err = client.WriteTo(discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67})
	check(t, err)
	count := 0
	buffer := make([]byte, 2000)
	for {
		check(t, client.SetReadDeadline(time.Now().Add(patience)))
		n, _, err := client.ReadFrom(buffer)
		if err != nil {
			return count
		}
		// The answer to an earlier request may come late.
		if answer, err := dhcpv4.FromBytes(buffer[:n]); err != nil || answer.TransactionID != discover.TransactionID {
			continue
		}
		count++
		patience = never
	}
}

// contents counts the objects in a namespace.
type contents struct{ links, addresses, tables, chains, rules int }

func inventory(t *testing.T, where *os.File) contents {
	t.Helper()
	nl := handle(t, where)
	links, err := complete(nl.LinkList)
	check(t, err)
	// The kernel checks for duplicates of its link-local addresses a while after it has made them.
	addresses, err := complete(func() ([]netlink.Addr, error) { return nl.AddrList(nil, 0) })
	check(t, err)
	found := contents{links: len(links), addresses: len(addresses)}
	conn, err := nftables.New(nftables.WithNetNSFd(int(where.Fd())))
	check(t, err)
	tables, err := conn.ListTables()
	check(t, err)
	chains, err := conn.ListChains()
	check(t, err)
	found.tables, found.chains = len(tables), len(chains)
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		check(t, err)
		found.rules += len(rules)
	}
	return found
}

func descriptors(t *testing.T) int {
	t.Helper()
	self, err := procfs.Self()
	check(t, err)
	n, err := self.FileDescriptorsLen()
	check(t, err)
	return n
}

// udpEcho answers datagrams, and forwards their content.
func udpEcho(t *testing.T, where *os.File, address string) <-chan string {
	t.Helper()
	var conn net.PacketConn
	in(t, where, func() error {
		var err error
		conn, err = net.ListenPacket("udp", address)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	heard := make(chan string, 10)
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			select {
			case heard <- string(buffer[:n]):
			default:
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}()
	return heard
}

func udpAnswers(t *testing.T, from *os.File, address string, patience time.Duration) bool {
	t.Helper()
	conn, err := dial(t, from, "udp", address)
	check(t, err)
	_, err = conn.Write([]byte("hello"))
	check(t, err)
	check(t, conn.SetReadDeadline(time.Now().Add(patience)))
	n, err := conn.Read(make([]byte, 100))
	return err == nil && n == 5
}

func ping(t *testing.T, from *os.File, address string, patience time.Duration) bool {
	t.Helper()
	conn, err := dial(t, from, "ip4:icmp", address)
	check(t, err)
	request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Data: []byte("drydock")}}).Marshal(nil)
	check(t, err)
	_, err = conn.Write(request)
	check(t, err)
	check(t, conn.SetReadDeadline(time.Now().Add(patience)))
	buffer := make([]byte, 1500)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return false
		}
		// The received data begins with the IP header.
		if answer, err := icmp.ParseMessage(protocolICMP, buffer[ipv4.HeaderLen:n]); err == nil && answer.Type == ipv4.ICMPTypeEchoReply {
			return true
		}
	}
}

const protocolICMP = 1

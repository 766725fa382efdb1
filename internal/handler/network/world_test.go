package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	nodeAddress = "10.244.7.1"
	podAddress  = "10.244.7.5"
	podMTU      = 1430
	// farAddress is behind a static route of the pod's.
	farAddress = "192.0.2.7"
	farNetwork = "192.0.2.0/24"
)

// world is a node, a pod and a guest, each in a network namespace of its own. The node has a network plugin's setup: a
// veth to the pod, which has an address and a default route. The guest's NIC is a tap in its own namespace, connected
// to the pod's tap like QEMU's: by user 107, with virtio-net headers, so that checksums and segments stay unfinished as
// they do between a host and a virtio-net guest.
type world struct {
	node, pod, guest *os.File
	podMAC           net.HardwareAddr
	manager          *Manager
	vmi              *v1.VirtualMachineInstance
}

const guestNIC = "nic0"

func newWorld(t *testing.T, iface v1.Interface) *world {
	t.Helper()
	w := &world{node: newNetNS(t), pod: newNetNS(t), guest: newNetNS(t), manager: New(testr.New(t))}
	t.Cleanup(w.manager.Close)
	iface.Name = "default"
	w.vmi = &v1.VirtualMachineInstance{}
	w.vmi.Name, w.vmi.Namespace, w.vmi.UID = "testvmi", "testns", types.UID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
	w.vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{iface}
	w.vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}

	node := handle(t, w.node)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "veth0", podMTU
	check(t, node.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: podInterface, PeerNamespace: netlink.NsFd(w.pod.Fd())}))
	addAddress(t, node, "veth0", nodeAddress+"/24")
	addAddress(t, node, "lo", farAddress+"/32")
	pod := handle(t, w.pod)
	eth0 := addAddress(t, pod, podInterface, podAddress+"/24")
	addAddress(t, pod, "lo", "")
	w.podMAC = eth0.Attrs().HardwareAddr
	addRoute(t, pod, eth0, "0.0.0.0/0", nodeAddress)
	addRoute(t, pod, eth0, farNetwork, nodeAddress)
	return w
}

func (w *world) setup(t *testing.T, m *Manager) Interface {
	t.Helper()
	interfaces, err := m.Setup(t.Context(), Pod{
		NetNS:      w.pod,
		ResolvConf: "search testns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\nnameserver fd00:96::a\noptions ndots:5\n",
	}, w.vmi)
	check(t, err)
	if len(interfaces) != 1 {
		t.Fatalf("Setup made %d interfaces instead of 1: %+v", len(interfaces), interfaces)
	}
	return interfaces[0]
}

func (w *world) plugIn(t *testing.T, made Interface) {
	t.Helper()
	ours := openTap(t, w.pod, made.Tap, layout.QEMUUser)
	theirs := openTap(t, w.guest, guestNIC, 0)
	var wires sync.WaitGroup
	for _, ends := range [][2]*os.File{{ours, theirs}, {theirs, ours}} {
		wires.Go(func() {
			buffer := make([]byte, 128<<10)
			for {
				n, err := ends[0].Read(buffer)
				if err != nil {
					return
				}
				// A NIC that is switched off loses the frame.
				_, _ = ends[1].Write(buffer[:n])
			}
		})
	}
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
		wires.Wait()
	})
	guest := handle(t, w.guest)
	nic, err := guest.LinkByName(guestNIC)
	check(t, err)
	mac, err := net.ParseMAC(made.MAC)
	check(t, err)
	check(t, guest.LinkSetHardwareAddr(nic, mac))
	check(t, guest.LinkSetMTU(nic, made.MTU))
	// Duplicate address detection is off, because nobody else can have its addresses.
	in(t, w.guest, func() error { return setSysctl("ipv6/conf/"+guestNIC+"/accept_dad", "0") })
	check(t, guest.LinkSetUp(nic))
}

func (w *world) bootGuest(t *testing.T, made Interface) *dhcpv4.DHCPv4 {
	t.Helper()
	w.plugIn(t, made)
	ack := w.lease(t, made.MAC)
	guest := handle(t, w.guest)
	ones, _ := ack.SubnetMask().Size()
	nic := addAddress(t, guest, guestNIC, fmt.Sprintf("%s/%d", ack.YourIPAddr, ones))
	routes := ack.ClasslessStaticRoute()
	if len(routes) == 0 {
		addRoute(t, guest, nic, "0.0.0.0/0", ack.Router()[0].String())
	}
	for _, route := range routes {
		addRoute(t, guest, nic, route.Dest.String(), route.Router.String())
	}
	return ack
}

// lease does DHCP's four steps through the kernel's UDP, and returns the acknowledgement.
func (w *world) lease(t *testing.T, mac string) *dhcpv4.DHCPv4 {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	check(t, err)
	client := w.dhcpClient(t)
	defer func() { _ = client.Close() }()
	discover, err := dhcpv4.NewDiscovery(hw)
	check(t, err)
	offer := exchange(t, client, discover)
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		t.Fatalf("the answer to a discovery is no offer:\n%s", offer.Summary())
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	check(t, err)
	ack := exchange(t, client, request)
	if ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Fatalf("the answer to a request is no acknowledgement:\n%s", ack.Summary())
	}
	return ack
}

func (w *world) dhcpClient(t *testing.T) net.PacketConn {
	t.Helper()
	var client net.PacketConn
	in(t, w.guest, func() error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = errors.Join(
					unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, guestNIC),
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
			})
			return errors.Join(err, failed)
		}}
		var err error
		client, err = config.ListenPacket(t.Context(), "udp4", "0.0.0.0:68")
		return err
	})
	return client
}

// exchange repeats a request as clients do, until its answer has come.
func exchange(t *testing.T, client net.PacketConn, request *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	t.Helper()
	buffer := make([]byte, 64<<10)
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); {
		_, err := client.WriteTo(request.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67})
		check(t, err)
		check(t, client.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		n, _, err := client.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		check(t, err)
		answer, err := dhcpv4.FromBytes(buffer[:n])
		check(t, err)
		if answer.TransactionID == request.TransactionID {
			return answer
		}
	}
	t.Fatalf("nobody answered %s", request.MessageType())
	return nil
}

// echo listens in a namespace; it answers each connection with the client's address, a newline, and then the received
// data.
func echo(t *testing.T, where *os.File, address string) {
	t.Helper()
	var listener net.Listener
	// Go determines only once what "tcp" supports, perhaps in a namespace whose loopback interface is off.
	network := "tcp4"
	if strings.HasPrefix(address, "[") {
		network = "tcp6"
	}
	in(t, where, func() error {
		var err error
		listener, err = net.Listen(network, address)
		return err
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
				_, _ = fmt.Fprintln(conn, host)
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

// The first is for events that must come, the second for those that must not.
const (
	soon  = 2 * time.Minute
	never = time.Second
)

func dial(t *testing.T, where *os.File, network, address string) (net.Conn, error) {
	t.Helper()
	return dialFor(t, where, network, address, 2*never)
}

func dialFor(t *testing.T, where *os.File, network, address string, patience time.Duration) (net.Conn, error) {
	t.Helper()
	var conn net.Conn
	var err error
	in(t, where, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return nil
	})
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func reach(t *testing.T, from *os.File, address string) (net.Conn, string) {
	t.Helper()
	conn, err := dialFor(t, from, "tcp", address, soon)
	if err != nil {
		t.Fatalf("connecting to %s: %v", address, err)
	}
	var seen string
	_, err = fmt.Fscanln(conn, &seen)
	check(t, err)
	return conn, seen
}

// The segments are larger than the MTU.
func carries(t *testing.T, conn net.Conn, size int) {
	t.Helper()
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	check(t, conn.SetDeadline(time.Now().Add(soon)))
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, size)
	_, err := io.ReadFull(conn, got)
	check(t, err)
	if string(got) != string(sent) {
		t.Fatal("the connection changed what it carried")
	}
}

func newNetNS(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result, 1)
	go onOwnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{nil, err}
			return
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		made <- result{f, err}
	})
	r := <-made
	if r.err != nil {
		t.Fatalf("making a network namespace: %v", r.err)
	}
	t.Cleanup(func() { _ = r.file.Close() })
	return r.file
}

// openTap opens a tap as QEMU does, as the given user.
func openTap(t *testing.T, where *os.File, name string, user int) *os.File {
	t.Helper()
	return openTapAs(t, where, name, user, 0)
}

func openQueue(t *testing.T, where *os.File, name string) *os.File {
	t.Helper()
	return openTapAs(t, where, name, layout.QEMUUser, unix.IFF_MULTI_QUEUE)
}

func openTapAs(t *testing.T, where *os.File, name string, user int, flags uint16) *os.File {
	t.Helper()
	var file *os.File
	in(t, where, func() error {
		fd, err := unix.Open(layout.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		// This affects only the thread, which ends with it: the kernel then removes its capabilities, too.
		if user != 0 {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
				return errno
			}
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return fmt.Errorf("TUNSETIFF: %w", err)
		}
		const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
			return fmt.Errorf("TUNSETOFFLOAD: %w", err)
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	return file
}

func in(t *testing.T, where *os.File, do func() error) {
	t.Helper()
	check(t, inside(where, do))
}

func handle(t *testing.T, where *os.File) *netlink.Handle {
	t.Helper()
	nl, err := openNetlink(where)
	check(t, err)
	t.Cleanup(nl.Close)
	return nl
}

func addAddress(t *testing.T, nl *netlink.Handle, name, address string) netlink.Link {
	t.Helper()
	link, err := nl.LinkByName(name)
	check(t, err)
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		check(t, err)
		if parsed.IP.To4() == nil {
			parsed.Flags = unix.IFA_F_NODAD
		}
		check(t, nl.AddrAdd(link, parsed))
	}
	check(t, nl.LinkSetUp(link))
	return link
}

func addRoute(t *testing.T, nl *netlink.Handle, link netlink.Link, to, via string) {
	t.Helper()
	destination, err := netlink.ParseIPNet(to)
	check(t, err)
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: destination}
	if gateway := netip.MustParseAddr(via); gateway.IsUnspecified() {
		route.Scope = netlink.SCOPE_LINK
	} else {
		route.Gw = gateway.AsSlice()
	}
	check(t, nl.RouteAdd(route))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

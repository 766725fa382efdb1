package network

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// The network that pods share beside their own, and two of its addresses.
const (
	red            = "red"
	redBridge      = "red0"
	redNodeAddress = "203.0.113.1"
	redAddress     = "203.0.113.7"
)

// shared is a node's network, as the CNI plugin bridge makes it: its pods are ports of a bridge.
type shared struct {
	node *os.File
	nl   *netlink.Handle
	link netlink.Link
}

func newShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{node: newNetNS(t)}
	s.nl = handle(t, s.node)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = redBridge, podMTU
	check(t, s.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	s.link = addAddress(t, s.nl, redBridge, redNodeAddress+"/24")
	return s
}

func (s *shared) pod(t *testing.T, port, ipam string) *os.File {
	t.Helper()
	pod := newNetNS(t)
	s.join(t, pod, port, ipam)
	return pod
}

func (s *shared) join(t *testing.T, pod *os.File, port, ipam string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = port, podMTU
	name := layout.SecondaryInterface(red)
	check(t, s.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(pod.Fd())}))
	link := addAddress(t, s.nl, port, "")
	check(t, s.nl.LinkSetMaster(link, s.link))
	addAddress(t, handle(t, pod), name, ipam)
}

func (s *shared) learned(t *testing.T, mac string) string {
	t.Helper()
	entries, err := s.nl.NeighList(0, unix.AF_BRIDGE)
	check(t, err)
	for _, e := range entries {
		if e.HardwareAddr.String() == mac {
			link, err := s.nl.LinkByIndex(e.LinkIndex)
			check(t, err)
			return link.Attrs().Name
		}
	}
	return ""
}

func onRed() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "testvmi", "testns", types.UID("1b4e28ba-2fa1-11d2-883f-0016d3cca428")
	iface := bridged()
	iface.Name = red
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{iface}
	vmi.Spec.Networks = []v1.Network{{Name: red, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "nets/red"}}}}
	return vmi
}

// nic is the NIC of a guest, which its QEMUs connect to their pod's tap.
type nic struct {
	guest, inside *os.File
	outside       atomic.Pointer[os.File]
	wires         sync.WaitGroup
}

func newNIC(t *testing.T, made Interface) *nic {
	t.Helper()
	n := &nic{guest: newNetNS(t)}
	n.inside = openTap(t, n.guest, guestNIC, 0)
	nl := handle(t, n.guest)
	link, err := nl.LinkByName(guestNIC)
	check(t, err)
	mac, err := net.ParseMAC(made.MAC)
	check(t, err)
	check(t, nl.LinkSetHardwareAddr(link, mac))
	check(t, nl.LinkSetMTU(link, made.MTU))
	addAddress(t, nl, guestNIC, redAddress+"/24")
	n.wires.Go(func() {
		n.copy(n.inside, func(frame []byte) {
			if to := n.outside.Load(); to != nil {
				_, _ = to.Write(frame)
			}
		})
	})
	t.Cleanup(func() {
		_ = n.inside.Close()
		n.leave()
		n.wires.Wait()
	})
	return n
}

func (n *nic) copy(from *os.File, pass func(frame []byte)) {
	buffer := make([]byte, 128<<10)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		pass(buffer[:size])
	}
}

func (n *nic) run(tap *os.File) {
	n.outside.Store(tap)
	n.wires.Go(func() { n.copy(tap, func(frame []byte) { _, _ = n.inside.Write(frame) }) })
}

// leave stops the guest in its pod.
func (n *nic) leave() {
	if tap := n.outside.Swap(nil); tap != nil {
		_ = tap.Close()
	}
}

// A tap's header precedes QEMU's packet.
func announcement(t *testing.T, mac string) []byte {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	check(t, err)
	const vnetHeader, rarp = 10, 28
	frame := append(make([]byte, vnetHeader), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	frame = append(frame, hw...)
	frame = append(frame, 0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3)
	return append(frame, make([]byte, rarp+18-8)...)
}

func setupIn(t *testing.T, m *Manager, pod Pod, vmi *v1.VirtualMachineInstance) Interface {
	t.Helper()
	made, err := m.Setup(t.Context(), pod, vmi)
	check(t, err)
	if len(made) != 1 {
		t.Fatalf("Setup made %+v", made)
	}
	return made[0]
}

// The guest's connection must live while it moves to another pod, which must be silent before the guest runs
// there, although its QEMU has announced it.
func TestAGuestMovesOnASharedNetwork(t *testing.T) {
	t.Parallel()
	s, vmi := newShared(t), onRed()
	source, target := s.pod(t, "source", ""), s.pod(t, "target", "")
	from, to := New(testr.New(t)), New(testr.New(t))
	t.Cleanup(from.Close)
	t.Cleanup(to.Close)
	made := setupIn(t, from, Pod{NetNS: source}, vmi)
	if made.MAC != machine.MAC(vmi, red) || len(made.IPs) != 0 || made.PodInterface != layout.SecondaryInterface(red) {
		t.Errorf("Setup answers %+v, want the guest's own MAC %s", made, machine.MAC(vmi, red))
	}
	guest := newNIC(t, made)
	guest.run(openTap(t, source, made.Tap, layout.QEMUUser))
	echo(t, guest.guest, redAddress+":80")
	conn, _ := reach(t, s.node, redAddress+":80")
	carries(t, conn, 1<<20)

	waits := Pod{NetNS: target, Awaits: true}
	there := setupIn(t, to, waits, vmi)
	if there.MAC != made.MAC || there.Tap != made.Tap {
		t.Errorf("Setup in the target answers %+v, in the source %+v", there, made)
	}
	arriving := openTap(t, target, there.Tap, layout.QEMUUser)
	_, err := arriving.Write(announcement(t, made.MAC))
	check(t, err)
	setupIn(t, to, waits, vmi) // the next virt-handler must not connect it either
	_, err = arriving.Write(announcement(t, made.MAC))
	check(t, err)
	carries(t, conn, 1<<20)
	if at := s.learned(t, made.MAC); at != "source" {
		t.Errorf("before the guest runs in the target, the network finds it at %q", at)
	}

	guest.leave()
	for range 2 { // repetition must do no harm
		check(t, to.Connect(waits, vmi))
	}
	guest.run(arriving)
	_, err = arriving.Write(announcement(t, made.MAC))
	check(t, err)
	awaitPort(t, s, made.MAC, "target")
	carries(t, conn, 1<<20)
	// The next virt-handler must find it connected, whether or not it knows that the guest runs here.
	setupIn(t, to, waits, vmi)
	carries(t, conn, 1<<20)
	setupIn(t, to, Pod{NetNS: target}, vmi)
	carries(t, conn, 1<<20)
}

func awaitPort(t *testing.T, s *shared, mac, port string) {
	t.Helper()
	for deadline, tick := time.Now().Add(soon), time.Tick(10*time.Millisecond); s.learned(t, mac) != port; <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("the network finds the guest at %q, want %q", s.learned(t, mac), port)
		}
	}
}

// TestANetworkWithAddressManagementGivesItsAddressToTheGuest, and must report that another pod has another one.
func TestANetworkWithAddressManagementGivesItsAddressToTheGuest(t *testing.T) {
	t.Parallel()
	s, vmi := newShared(t), onRed()
	pod := s.pod(t, "pod", redAddress+"/24")
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	made := setupIn(t, m, Pod{NetNS: pod}, vmi)
	if len(made.IPs) != 1 || made.IPs[0] != redAddress || made.MAC != machine.MAC(vmi, red) {
		t.Errorf("Setup answers %+v", made)
	}
	if made.Reached() {
		t.Error("virt-handler is to connect to an address that the network's author chose")
	}
}

func TestAPodWithoutItsSecondaryInterfaceNamesMultus(t *testing.T) {
	t.Parallel()
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	_, err := m.Setup(t.Context(), Pod{NetNS: newNetNS(t)}, onRed())
	if err == nil || !strings.Contains(err.Error(), "on the network nets/red: Multus, which makes it, did not run") {
		t.Errorf("the answer is %v", err)
	}
}

// An interface without a tap is not QEMU's, and only interfaces that are not kept must be removed.
func TestInterfacesComeAndGoInAPodThatRuns(t *testing.T) {
	t.Parallel()
	s, vmi := newShared(t), onRed()
	pod := s.pod(t, "pod", "")
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	runs := Pod{NetNS: pod, Runs: true}
	if made, err := m.Setup(t.Context(), runs, vmi); err != nil || len(made) != 0 {
		t.Errorf("before it is set up, QEMU has %+v (%v)", made, err)
	}
	made := setupIn(t, m, Pod{NetNS: pod}, vmi)
	if again := setupIn(t, m, runs, vmi); again.Tap != made.Tap {
		t.Errorf("the next virt-handler finds %+v", again)
	}
	links := func() (names []string) {
		list, err := handle(t, pod).LinkList()
		check(t, err)
		for _, link := range list {
			names = append(names, link.Attrs().Name)
		}
		slices.Sort(names)
		return names
	}
	before := links()
	check(t, m.RemoveLeftovers(runs, []string{red}))
	if now := links(); !slices.Equal(now, before) {
		t.Errorf("of %v there are left %v", before, now)
	}
	for range 2 {
		check(t, m.RemoveLeftovers(runs, []string{"blue"}))
	}
	want := slices.DeleteFunc(slices.Clone(before), func(name string) bool {
		return name == made.Tap || name == layout.SecondaryLink("k6t-", red)
	})
	if now := links(); !slices.Equal(now, want) || len(want) != len(before)-2 {
		t.Errorf("of %v there are left %v, want %v", before, now, want)
	}
	setupIn(t, m, Pod{NetNS: pod, Runs: true, Comes: []string{red}}, vmi) // it comes back
	if now := links(); !slices.Equal(now, before) {
		t.Errorf("there are %v again, want %v", now, before)
	}
	loose := func(want ...string) {
		t.Helper()
		if got, err := m.Disconnected(runs, []string{red, "blue"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v are loose (%v), want %v", got, err, want)
		}
	}
	loose()
	// The pod loses it, while QEMU has it, and gets another one.
	nl := handle(t, pod)
	link, err := nl.LinkByName(layout.SecondaryInterface(red))
	check(t, err)
	check(t, nl.LinkDel(link))
	if made, err := m.Setup(t.Context(), runs, vmi); err != nil || len(made) != 0 {
		t.Errorf("when the pod has lost it, there are %+v (%v)", made, err)
	}
	loose(red)
	s.join(t, pod, "again", "")
	loose(red)
	setupIn(t, m, Pod{NetNS: pod, Runs: true}, vmi)
	loose()
}

// The device must be found, not made, and a QEMU that has it needs no command.
func TestADeviceOfTheNodeNeedsNoLinks(t *testing.T) {
	t.Parallel()
	vmi, pod := onRed(), newNetNS(t)
	vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	own := layout.SecondaryInterface(red)
	devices := nichotplug.Devices{own: "0000:65:00.2"}
	want := Interface{Name: red, Device: "0000:65:00.2", MAC: machine.MAC(vmi, red), Queues: 1, PodInterface: own}
	for name, given := range map[string]Pod{
		"a guest that starts":              {NetNS: pod, Devices: devices},
		"one that comes to a guest":        {NetNS: pod, Devices: devices, Runs: true, Comes: []string{red}},
		"one that the guest has":           {NetNS: pod, Devices: devices, Runs: true},
		"one that the guest has, not said": {NetNS: pod, Runs: true},
	} {
		made := setupIn(t, m, given, vmi)
		if of := want; given.Devices == nil {
			of.Device = ""
			check(t, sameInterface(made, of))
			continue
		}
		if err := sameInterface(made, want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, given := range map[string]Pod{"a guest that starts": {NetNS: pod}, "one that comes to a guest": {NetNS: pod, Runs: true, Comes: []string{red}}} {
		_, err := m.Setup(t.Context(), given, vmi)
		if err == nil || !strings.Contains(err.Error(), "spec.domain.devices.interfaces[0].sriov: which device of the node it is, the launcher pod does not say") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, m.Connect(Pod{NetNS: pod}, vmi))
	list, err := handle(t, pod).LinkList()
	check(t, err)
	if len(list) != 1 {
		t.Errorf("there are %d links", len(list))
	}
}

func sameInterface(got, want Interface) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

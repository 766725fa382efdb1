package network

import (
	"bytes"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	v1 "kubevirt.io/api/core/v1"
)

func bridged() v1.Interface {
	return v1.Interface{InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}
}

func TestBridgeGivesThePodsPlaceToTheGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bridged())
	made := w.setup(t, w.manager)
	if made.MAC != w.podMAC.String() || made.MTU != podMTU || len(made.IPs) != 1 || made.IPs[0] != podAddress {
		t.Errorf("Setup answers %+v; the pod's interface had %s", made, w.podMAC)
	}
	ack := w.bootGuest(t, made)
	if ones, _ := ack.SubnetMask().Size(); ack.YourIPAddr.String() != podAddress || ones != 24 {
		t.Errorf("the guest is told address %s/%d, want %s/24", ack.YourIPAddr, ones, podAddress)
	}
	if router := ack.Router(); len(router) != 1 || router[0].String() != nodeAddress {
		t.Errorf("the guest is told routers %v, want %s", router, nodeAddress)
	}
	echo(t, w.node, nodeAddress+":5000")
	echo(t, w.node, farAddress+":5000")
	echo(t, w.guest, ":80")
	for _, address := range []string{nodeAddress + ":5000", farAddress + ":5000"} {
		conn, seen := reach(t, w.guest, address)
		if seen != podAddress {
			t.Errorf("the guest's connection to %s comes from %s, want the pod's address", address, seen)
		}
		carries(t, conn, 1<<20)
	}
	conn, seen := reach(t, w.node, podAddress+":80")
	if seen != nodeAddress {
		t.Errorf("a connection to the guest comes from %s", seen)
	}
	carries(t, conn, 1<<20)
	if _, err := dialFor(t, w.node, "tcp", podAddress+":81", soon); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that nobody in the guest listens on: got %v, want it refused", err)
	}
	if mac := neighbor(t, w); !bytes.Equal(mac, w.podMAC) {
		t.Errorf("the node finds the pod's address at %s, want the guest's %s", mac, w.podMAC)
	}
}

// Like other pods, virt-handler must reach the guest from its own namespace: the pod no longer has the address.
func TestABridgedGuestsPortsAreReachedFromTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bridged())
	made := w.setup(t, w.manager)
	w.bootGuest(t, made)
	echo(t, w.guest, ":80")
	in(t, w.node, func() error {
		conn, err := w.dialGuest(t, made, "tcp", 80)
		if err != nil {
			return err
		}
		if conn.RemoteAddr().String() != podAddress+":80" {
			t.Errorf("the guest is reached at %s", conn.RemoteAddr())
		}
		return conn.Close()
	})
}

func TestBridgeRespectsAChosenMAC(t *testing.T) {
	t.Parallel()
	iface := bridged()
	iface.MacAddress = "DE-AD-00-00-BE-AF"
	w := newWorld(t, iface)
	made := w.setup(t, w.manager)
	if made.MAC != "de:ad:00:00:be:af" {
		t.Errorf("the guest gets MAC %s", made.MAC)
	}
	w.bootGuest(t, made)
	echo(t, w.guest, ":80")
	reach(t, w.node, podAddress+":80")
}

func TestBridgeKeepsThePodSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bridged())
	w.setup(t, w.manager)
	// There is no guest yet, so an answer would come from the pod itself.
	if conn, err := dial(t, w.node, "tcp", podAddress+":80"); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the pod answers for the guest: %v, %v", conn, err)
	}
	if mac := neighbor(t, w); mac != nil {
		t.Errorf("the node finds the pod's address at %s", mac)
	}
	// The pod must not answer for the address either.
	if conn, err := dial(t, w.pod, "tcp", nodeAddress+":5000"); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the pod reaches the node by the guest's address: %v, %v", conn, err)
	}
	if mac := neighbor(t, w); mac != nil {
		t.Errorf("the node finds the pod's address at %s, which the pod must have told it", mac)
	}
}

func TestBridgeIsFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bridged())
	made := w.setup(t, w.manager)
	w.bootGuest(t, made)
	echo(t, w.guest, ":80")
	conn, _ := reach(t, w.node, podAddress+":80")
	before := inventory(t, w.pod)

	w.manager.Close()
	second := New(testr.New(t))
	t.Cleanup(second.Close)
	again := w.setup(t, second)
	if again.MAC != made.MAC || len(again.IPs) != 1 || again.IPs[0] != podAddress {
		t.Errorf("the second Setup answers %+v, the first %+v", again, made)
	}
	if after := inventory(t, w.pod); after != before {
		t.Errorf("the namespace holds %+v, before %+v", after, before)
	}
	carries(t, conn, 100000)
	ack := w.lease(t, made.MAC)
	if ack.YourIPAddr.String() != podAddress || len(ack.ClasslessStaticRoute()) != 2 {
		t.Errorf("the second lease: %s", ack.Summary())
	}
}

// A crash may come between any two steps of Setup.
func TestBridgeIsFinishedAfterACrash(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]func(t *testing.T, w *world, nl *netlink.Handle){
		"bridge made, MAC not yet written down": func(t *testing.T, w *world, nl *netlink.Handle) {
			_, err := ensureBridge(w.pod, nl, podBridge, nil, podMTU)
			check(t, err)
		},
		"MAC written down, but not yet changed": func(t *testing.T, w *world, nl *netlink.Handle) {
			bridge, err := ensureBridge(w.pod, nl, podBridge, nil, podMTU)
			check(t, err)
			outside, err := readLink(nl, podInterface)
			check(t, err)
			_, err = saveMAC(nl, outside, bridge)
			check(t, err)
		},
		"pod's interface handed over, no tap yet": func(t *testing.T, w *world, nl *netlink.Handle) {
			bridge, err := ensureBridge(w.pod, nl, podBridge, nil, podMTU)
			check(t, err)
			outside, err := readLink(nl, podInterface)
			check(t, err)
			_, err = detachFromPod(nl, outside, bridge)
			check(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, bridged())
			done(t, w, handle(t, w.pod))
			made := w.setup(t, w.manager)
			if made.MAC != w.podMAC.String() {
				t.Errorf("the guest gets MAC %s, the pod had %s", made.MAC, w.podMAC)
			}
			w.bootGuest(t, made)
			echo(t, w.guest, ":80")
			reach(t, w.node, podAddress+":80")
		})
	}
}

func TestBridgeKeepsDHCPToItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bridged())
	made := w.setup(t, w.manager)
	w.plugIn(t, made)
	heard := udpEcho(t, w.node, "0.0.0.0:67")
	w.lease(t, made.MAC)
	select {
	case <-heard:
		t.Error("the guest's DHCP request got out of its pod")
	case <-time.After(200 * time.Millisecond):
	}
}

func neighbor(t *testing.T, w *world) net.HardwareAddr {
	t.Helper()
	nl := handle(t, w.node)
	link, err := nl.LinkByName("veth0")
	check(t, err)
	neighbors, err := nl.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	check(t, err)
	for _, n := range neighbors {
		if n.IP.String() == podAddress && len(n.HardwareAddr) > 0 && n.State&netlink.NUD_FAILED == 0 {
			return n.HardwareAddr
		}
	}
	return nil
}

//go:build system

package network

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

func startMember(t *testing.T, node string) (Member, func()) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by a signal
	}
	t.Cleanup(end)
	return Member{Node: node, PID: cmd.Process.Pid}, end
}

func inside(t *testing.T, member Member) *nodeNet {
	t.Helper()
	m, err := enter(member)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func cables(t *testing.T, member Member) map[string]int {
	t.Helper()
	links, err := inside(t, member).LinkList()
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for _, link := range links {
		if link.Type() == "veth" {
			ends[link.Attrs().Name] = link.Attrs().Index
		}
	}
	return ends
}

func onLan(t *testing.T, member Member, address string) {
	t.Helper()
	m := inside(t, member)
	link, err := m.LinkByName(Lans[0])
	if err != nil {
		t.Fatal(err)
	}
	if filters(link) {
		if err := m.BridgeVlanAdd(link, 1, true, true, true, false); err != nil {
			t.Fatal(err)
		}
	}
	addr, err := netlink.ParseAddr(address + "/24")
	if err == nil {
		err = m.AddrReplace(link, addr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A closed port's refusal shows that the address is there.
func reach(t *testing.T, from Member, address string) {
	t.Helper()
	ended, ns := make(chan error, 1), inside(t, from).ns
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends in the node's namespace
		ended <- func() error {
			if err := netns.Set(ns); err != nil {
				return err
			}
			conn, err := net.DialTimeout("tcp4", net.JoinHostPort(address, "9"), time.Minute)
			if err == nil {
				return errors.Join(errors.New("somebody listens there"), conn.Close())
			}
			if errors.Is(err, unix.ECONNREFUSED) {
				return nil
			}
			return err
		}()
	}()
	if err := <-ended; err != nil {
		t.Errorf("from %s to %s: %v", from.Node, address, err)
	}
}

// Three nodes join, one dies and comes back, and a broadcast frame must reach each once.
func TestEachNodeReachesEachOnALan(t *testing.T) {
	c := layout.Cluster{Name: "lans", Nodes: []string{"node1", "node2", "node3"}}
	var members []Member
	var end func()
	for _, node := range c.Nodes {
		var member Member
		member, end = startMember(t, node)
		if err := ConnectLans(c, member, members); err != nil {
			t.Fatal(err)
		}
		members = append(members, member)
	}
	before := cables(t, members[0])
	if want := 2 * len(Lans); len(before) != want {
		t.Errorf("node1 has the cables %v, want %d", before, want)
	}
	if err := ConnectLans(c, members[0], members[1:]); err != nil {
		t.Fatal(err)
	}
	if after := cables(t, members[0]); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("connecting again changed the cables from %v to %v", before, after)
	}

	end() // node3, whose end of the cables may exist for a while
	if err := ConnectLans(c, members[0], members[1:]); err != nil {
		t.Errorf("a node that has ended keeps another from starting: %v", err)
	}
	members[2], _ = startMember(t, "node3")
	if err := ConnectLans(c, members[2], members[:2]); err != nil {
		t.Fatal(err)
	}
	for i, member := range members {
		onLan(t, member, fmt.Sprintf("192.0.2.%d", i+1))
	}
	for _, from := range members {
		for i, to := range members {
			if to != from {
				reach(t, from, fmt.Sprintf("192.0.2.%d", i+1))
			}
		}
	}
	for _, member := range members {
		link, err := inside(t, member).LinkByName(Lans[0])
		if err != nil {
			t.Fatal(err)
		}
		if received := link.Attrs().Statistics.RxPackets; received > 1000 {
			t.Errorf("%s received %d packets for a few connections: they go round", member.Node, received)
		}
	}
}

//go:build system

package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"drydock.dev/local/internal/layout"
)

// testHost is a host with a cluster of two nodes and a neighbor in its LAN, each in a network namespace. The
// test's thread is in the host's.
type testHost struct {
	t              *testing.T
	c              layout.Cluster
	host           netns.NsHandle
	lan, one, two  netns.NsHandle
	lanIP, localIP string
	pods           [2]string
}

// machine is a namespace with a process in it, like a node's.
func machine(t *testing.T) (int, netns.NsHandle) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }) // it was killed
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }() // a descriptor to compare with
	for deadline, tick := time.Now().Add(time.Minute), time.Tick(time.Millisecond); ; <-tick {
		ns, err := netns.GetFromPid(cmd.Process.Pid)
		if err == nil && !ns.Equal(own) {
			t.Cleanup(func() { _ = ns.Close() })
			return cmd.Process.Pid, ns
		}
		if time.Now().After(deadline) {
			t.Fatalf("no namespace of its own: %v", err)
		}
	}
}

func newTestHost(t *testing.T, policies string) *testHost {
	t.Helper()
	ownNamespace(t)
	h := &testHost{t: t, c: layout.Cluster{Name: "net", Dir: "/nowhere", Net: 77, Nodes: []string{"node1", "node2"}}, lanIP: "192.0.2.2", localIP: "192.0.2.1"}
	var err error
	if h.host, err = netns.Get(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.host.Close() })
	run(t, "ip link set lo up")
	lanPID, lan := machine(t)
	h.lan = lan
	run(t, fmt.Sprintf(`ip link add lan0 type veth peer name eth0 netns %[1]d
		ip addr add 192.0.2.1/24 dev lan0; ip link set lan0 up
		nsenter -n -t %[1]d sh -ec 'ip link set lo up; ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up; ip route add 10.77.0.0/16 via 192.0.2.1'`, lanPID))
	if policies != "" {
		run(t, policies)
	}
	h.open()
	for i, node := range h.c.Nodes {
		pid, ns := machine(t)
		if err := AttachNode(h.c, node, pid, 1500); err != nil {
			t.Fatal(err)
		}
		h.pods[i] = h.c.NodePodNet(node).Addr().Next().Next().String()
		run(t, fmt.Sprintf("nsenter -n -t %d sh -ec 'ip addr add %s/32 dev lo; echo 1 >/proc/sys/net/ipv4/ip_forward'", pid, h.pods[i]))
		if i == 0 {
			h.one = ns
		} else {
			h.two = ns
		}
	}
	return h
}

func (h *testHost) open() {
	h.t.Helper()
	for range 2 { // the second time must change nothing
		if err := EnsureHost(h.c, 1500); err != nil {
			h.t.Fatal(err)
		}
	}
}

// The thread ends with the function.
func within(ns netns.NsHandle, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// connect returns the client's address that the server sees, or why the connection fails.
func connect(from, to netns.NsHandle, source, address string, patience time.Duration) (seen string, err error) {
	var listener net.Listener
	if err := within(to, func() (err error) { listener, err = net.Listen("tcp4", address); return err }); err != nil {
		return "", fmt.Errorf("the test can't listen: %w", err)
	}
	defer listener.Close()
	accepted := make(chan string, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // it has a port
			accepted <- host
			_ = conn.Close()
		}
	}()
	err = within(from, func() error {
		d := net.Dialer{Timeout: patience}
		if source != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		}
		conn, err := d.Dial("tcp4", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return <-accepted, nil
}

func (h *testHost) passes(what string, from, to netns.NsHandle, source, address, want string) {
	h.t.Helper()
	seen, err := connect(from, to, source, address, 20*time.Second)
	if err != nil || seen != want {
		h.t.Errorf("%s must pass: seen as %q, want %q: %v", what, seen, want, err)
	}
}

func (h *testHost) blocked(what string, from, to netns.NsHandle, source, address string) {
	h.t.Helper()
	if seen, err := connect(from, to, source, address, time.Second); err == nil {
		h.t.Errorf("%s must be blocked and is seen as %q", what, seen)
	} else if strings.Contains(err.Error(), "the test can't") {
		h.t.Error(err)
	}
}

func (h *testHost) whatTheClusterNeeds() {
	h.t.Helper()
	api, node1 := h.c.HostIP().String(), h.c.NodeIP("node1").String()
	h.passes("a node to the API server", h.one, h.host, "", api+":6443", node1)
	h.passes("a pod to the API server", h.one, h.host, h.pods[0], api+":6443", h.pods[0])
	h.passes("a pod to the host's name server", h.one, h.host, h.pods[0], h.localIP+":53", h.pods[0])
	h.passes("the host to a kubelet", h.host, h.one, "", node1+":10250", api)
	h.passes("the host to a pod", h.host, h.two, "", h.pods[1]+":8443", api)
	h.passes("a pod to a pod on the other node", h.one, h.two, h.pods[0], h.pods[1]+":8080", h.pods[0])
	h.passes("a pod to the world, behind the host's address", h.one, h.lan, h.pods[0], h.lanIP+":80", h.localIP)
	h.blocked("a node to etcd", h.one, h.host, "", api+":2379")
	h.blocked("the LAN to etcd", h.lan, h.host, "", api+":2379")
	h.blocked("the LAN to a pod", h.lan, h.one, "", h.pods[0]+":8080")
	h.blocked("the LAN to a node", h.lan, h.one, "", node1+":10250")
}

const (
	iptablesDeny = "iptables -P INPUT DROP; iptables -P FORWARD DROP; iptables -A INPUT -i lo -j ACCEPT; iptables -A INPUT -j DROP; iptables -A FORWARD -j REJECT"
	nftDeny      = `nft 'table inet filter {
		chain input { type filter hook input priority filter; policy drop; iif lo accept; counter drop; }
		chain forward { type filter hook forward priority filter; policy drop; reject with icmpx admin-prohibited; }
		chain output { type filter hook output priority filter; }
	}'`
)

func (h *testHost) leftovers() string {
	h.t.Helper()
	return run(h.t, fmt.Sprintf("(nft list ruleset 2>/dev/null; ip -o link; ip route) | grep -E '%s|%s|10\\.77\\.' || true", h.c.Table(), h.c.Bridge()))
}

func (h *testHost) remove() {
	h.t.Helper()
	for range 2 { // the second time must change nothing
		if err := Remove(h.c); err != nil {
			h.t.Fatal(err)
		}
	}
	if left := h.leftovers(); left != "" {
		h.t.Errorf("left behind:\n%s", left)
	}
}

func TestWhatTheClusterNeedsPassesTheHostsFirewall(t *testing.T) {
	for name, policies := range map[string]string{
		"no firewall": "",
		"iptables, which drops what comes in and what is forwarded":         iptablesDeny,
		"nftables, which drops what comes in and rejects what is forwarded": nftDeny,
		"both at once": iptablesDeny + ";" + nftDeny,
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t, policies)
			before := ""
			if policies != "" {
				h.blocked("the LAN to a service of the host", h.lan, h.host, "", h.localIP+":9999")
				h.blocked("a pod to another service of the host", h.one, h.host, h.pods[0], h.localIP+":9999")
				before = run(t, "iptables -S FORWARD | tail -1; iptables -S INPUT | tail -1")
			}
			h.whatTheClusterNeeds()
			h.remove()
			if policies != "" {
				if after := run(t, "iptables -S FORWARD | tail -1; iptables -S INPUT | tail -1"); after != before {
					t.Errorf("the host's own rules were\n%s\nand are\n%s", before, after)
				}
			}
		})
	}
}

// TestRulesGoWhateverHasBecomeOfThePolicy: earlier builds searched for their rules only where the policy was DROP.
func TestRulesGoWhateverHasBecomeOfThePolicy(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"from drop to accept": {iptablesDeny + ";" + nftDeny, "iptables -P FORWARD ACCEPT; iptables -P INPUT ACCEPT; nft 'chain inet filter forward { policy accept; }'"},
		"from accept to drop": {"iptables -A FORWARD -i other0 -j ACCEPT", "iptables -P FORWARD DROP; iptables -P INPUT DROP"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t, test.before)
			run(t, test.after)
			h.whatTheClusterNeeds()
			h.remove()
		})
	}
}

// TestRulesComeFirstAgain has a firewall that was reloaded while the cluster ran, and rules of an earlier build.
func TestRulesComeFirstAgain(t *testing.T) {
	h := newTestHost(t, iptablesDeny)
	run(t, "iptables -F INPUT; iptables -F FORWARD; "+iptablesDeny+"; iptables -I FORWARD -j REJECT")
	run(t, fmt.Sprintf("iptables -A FORWARD -i %[1]s -j ACCEPT; iptables -A FORWARD -o %[1]s -j ACCEPT", h.c.Bridge()))
	h.open()
	h.whatTheClusterNeeds()
	if got := strings.Count(run(t, "iptables -S"), h.c.Table()); got != len(needs(h.c)) {
		t.Errorf("there are %d rules of ours, want %d:\n%s", got, len(needs(h.c)), run(t, "iptables -S"))
	}
	h.remove()
}

// A host with nftables must not get an empty table of iptables.
func TestNothingIsMadeForAFirewallThatIsNotThere(t *testing.T) {
	h := newTestHost(t, nftDeny)
	if tables := run(t, "nft list tables"); strings.Contains(tables, "table ip filter") {
		t.Errorf("the tables are\n%s", tables)
	}
	h.remove()
	if tables := run(t, "nft list tables"); tables != "table inet filter\n" {
		t.Errorf("the tables are\n%s", tables)
	}
}

// TestFirewalldIsAskedToTrustTheBridge checks only the calls: a stand-in for firewalld's program keeps its zone in a
// file.
func TestFirewalldIsAskedToTrustTheBridge(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
echo "$@" >>%[1]s/calls
case "$2" in
--query-interface=*) test -e %[1]s/trusted ;;
--add-interface=*) touch %[1]s/trusted ;;
--remove-interface=*) rm %[1]s/trusted ;;
esac
`, dir)
	if err := os.WriteFile(filepath.Join(dir, "firewall-cmd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	h := newTestHost(t, "nft 'table inet firewalld { chain filter_INPUT { type filter hook input priority 10; }; }'")
	h.remove()
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	bridge := h.c.Bridge()
	want := strings.ReplaceAll("--zone=trusted --query-interface=B\n--zone=trusted --add-interface=B\n--zone=trusted --query-interface=B\n"+
		"--zone=trusted --query-interface=B\n--zone=trusted --remove-interface=B\n--zone=trusted --query-interface=B\n", "=B", "="+bridge)
	if err != nil || string(calls) != want {
		t.Errorf("firewalld was asked, %v:\n%swant:\n%s", err, calls, want)
	}
}

package network

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// virt-handler is in the test's own namespace.
func (w *world) dialGuest(t *testing.T, to Interface, protocol string, port int) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conn, err := w.manager.Dial(ctx, w.pod, to, protocol, port)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// virt-handler's own namespace has no route to the guest.
func TestTheGuestsPortsAreReachedFromWithinItsPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade(v1.Port{Port: 80}, v1.Port{Port: 53, Protocol: "UDP"}))
	made := w.setup(t, w.manager)
	w.bootGuest(t, made)
	echo(t, w.guest, ":80")
	echo(t, w.guest, ":81")
	if !made.Reached() {
		t.Fatalf("Setup answers %+v", made)
	}
	conn, err := w.dialGuest(t, made, "tcp", 80)
	check(t, err)
	reader := bufio.NewReader(conn)
	if from, err := reader.ReadString('\n'); err != nil || strings.TrimSpace(from) != "10.0.2.1" {
		t.Errorf("the guest is called by %q (error: %v), want its router", from, err)
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	if said, err := reader.ReadString('\n'); said != "hello\n" {
		t.Errorf("the echo is %q (error: %v)", said, err)
	}
	if _, err := w.dialGuest(t, made, "tcp", 81); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that is not declared: %v", err)
	}
	var heard net.PacketConn
	in(t, w.guest, func() (err error) {
		heard, err = net.ListenPacket("udp4", ":53")
		return err
	})
	defer func() { check(t, heard.Close()) }()
	datagrams, err := w.dialGuest(t, made, "udp", 53)
	check(t, err)
	_, err = datagrams.Write([]byte("asked"))
	check(t, err)
	check(t, heard.SetReadDeadline(time.Now().Add(soon)))
	said := make([]byte, 16)
	n, back, err := heard.ReadFrom(said)
	check(t, err)
	_, err = heard.WriteTo(said[:n], back)
	check(t, err)
	check(t, datagrams.SetReadDeadline(time.Now().Add(soon)))
	if n, err := datagrams.Read(said); err != nil || string(said[:n]) != "asked" {
		t.Errorf("the datagram that comes back is %q (error: %v)", said[:n], err)
	}
}

// No listener in virt-handler's namespace may be reached: an address of the pod is dialed in the pod, and one
// from another network is not dialed.
func TestAGuestsAddressLeadsToNothingOfTheNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	taken := make(chan net.Conn, 1)
	go func() {
		defer close(taken)
		if conn, err := listener.Accept(); err == nil {
			taken <- conn
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	for name, to := range map[string]Interface{
		"behind the pod":       {Name: "a", Way: InPod, IPs: []string{"127.0.0.1"}},
		"beside the pods'":     {Name: "a", IPs: []string{"127.0.0.1"}},
		"on the pods' network": {Name: "a", Way: OnPodNetwork, IPs: []string{"127.0.0.1"}},
		"link-local":           {Name: "a", Way: OnPodNetwork, IPs: []string{"169.254.169.254"}},
		"without an address":   {Name: "a", Way: InPod},
	} {
		if conn, err := w.dialGuest(t, to, "tcp", port); err == nil {
			t.Errorf("%s: connected to %s", name, conn.RemoteAddr())
		}
	}
	check(t, listener.Close())
	if conn := <-taken; conn != nil {
		t.Error("the node's own listener was reached")
	}
}

func TestADialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, masquerade())
	made := w.setup(t, w.manager) // no guest answers for its address
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.manager.Dial(ctx, w.pod, made, "tcp", 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the dial ends with %v", err)
	}
}

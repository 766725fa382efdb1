package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Way is how virt-handler reaches a guest's ports.
type Way int

// A guest on a secondary network gets NoWay: a user chose its address, which may be the node's own or one that only the
// node can reach.
const (
	NoWay Way = iota
	// InPod connects from within the pod, where nothing of the node is reachable.
	InPod
	// OnPodNetwork connects as other pods do: the pod itself can't reach a guest in its place.
	OnPodNetwork
)

// Reached reports whether the guest is dialed through this interface.
func (i Interface) Reached() bool { return i.Way != NoWay && len(i.IPs) > 0 }

// Dial connects to a port of the guest. protocol is "tcp" or "udp".
func (m *Manager) Dial(ctx context.Context, namespace *os.File, to Interface, protocol string, port int) (net.Conn, error) {
	if !to.Reached() {
		return nil, fmt.Errorf("interface %s has no address on the pods' network", to.Name)
	}
	address, err := netip.ParseAddr(to.IPs[0])
	if err != nil {
		return nil, fmt.Errorf("reading the address of interface %s: %w", to.Name, err)
	}
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("port %d: must be from 1 to 65535", port)
	}
	if to.Way == InPod {
		return dialInside(ctx, namespace, protocol, netip.AddrPortFrom(address, uint16(port)))
	}
	if !address.IsGlobalUnicast() {
		return nil, fmt.Errorf("the address %s of interface %s is none on the pods' network", address, to.Name)
	}
	return (&net.Dialer{}).DialContext(ctx, protocol, net.JoinHostPort(address.String(), strconv.Itoa(port)))
}

// Only the socket's creation, not the wait, needs a thread in the namespace.
func dialInside(ctx context.Context, namespace *os.File, protocol string, to netip.AddrPort) (net.Conn, error) {
	kinds := map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}
	kind, known := kinds[protocol]
	if !known {
		return nil, fmt.Errorf("protocol %q: must be tcp or udp", protocol)
	}
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	var socket *os.File
	err := inside(namespace, func() error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("making a socket in the pod's network namespace: %w", err)
		}
		socket = os.NewFile(uintptr(fd), protocol+" "+to.String())
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer socket.Close() // the connection has a duplicate descriptor
	if err := connect(ctx, socket, address); err != nil {
		return nil, fmt.Errorf("connecting to %s in the pod: %w", to, err)
	}
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, fmt.Errorf("using the connection to %s in the pod: %w", to, err)
	}
	return conn, nil
}

func connect(ctx context.Context, socket *os.File, to unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var connecting error
	// connect is repeated whenever the socket becomes writable, and then returns the attempt's result.
	err = raw.Write(func(fd uintptr) bool {
		connecting = unix.Connect(int(fd), to)
		if errors.Is(connecting, unix.EISCONN) {
			connecting = nil
		}
		return !errors.Is(connecting, unix.EINPROGRESS) && !errors.Is(connecting, unix.EALREADY) && !errors.Is(connecting, unix.EINTR)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, connecting)
}

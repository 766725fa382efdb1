package portforward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxDatagram is the largest payload of UDP over IPv4.
	maxDatagram = 65507
	// udpIdle ends the stream of a silent sender, since UDP has no end. It is twice conntrack's timeout of a
	// one-way flow.
	udpIdle = 60 * time.Second
)

// listenUDP opens the local port and returns a function that serves it until the context ends. Each sender has
// its own stream, so that the responses reach it.
func (f *forwarder) listenUDP(ctx context.Context, p port, address string) (net.Addr, func() error, error) {
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	local, isUDP := packets.(*net.UDPConn)
	if !isUDP {
		return nil, nil, errors.Join(fmt.Errorf("listening on %s: it is no UDP socket", address), packets.Close())
	}
	u := &udpPort{forwarder: f, port: p, local: local, flows: map[netip.AddrPort]net.Conn{}}
	return local.LocalAddr(), func() error { return u.serve(ctx) }, nil
}

type udpPort struct {
	*forwarder
	port  port
	local *net.UDPConn

	mu    sync.Mutex
	flows map[netip.AddrPort]net.Conn
	tasks sync.WaitGroup
}

func (u *udpPort) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = u.local.Close() })
	defer stop()
	defer u.closeAll()
	datagram := make([]byte, maxDatagram)
	for {
		n, from, err := u.local.ReadFromUDPAddrPort(datagram)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiving on %s: %w", u.local.LocalAddr(), err)
		}
		// A lost datagram is usual for UDP.
		u.complain(u.deliver(ctx, from, datagram[:n]))
	}
}

func (u *udpPort) deliver(ctx context.Context, from netip.AddrPort, datagram []byte) error {
	flow, err := u.flow(ctx, from)
	if err != nil {
		return err
	}
	_ = flow.SetReadDeadline(time.Now().Add(udpIdle))
	_, err = flow.Write(datagram)
	return err
}

// A sender's first datagram opens its stream.
func (u *udpPort) flow(ctx context.Context, from netip.AddrPort) (net.Conn, error) {
	u.mu.Lock()
	flow, exists := u.flows[from]
	u.mu.Unlock()
	if exists {
		return flow, nil
	}
	flow, err := u.dial(ctx, u.port)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.flows[from] = flow
	u.mu.Unlock()
	u.tasks.Go(func() {
		datagram := make([]byte, maxDatagram)
		for {
			n, err := flow.Read(datagram)
			if err != nil {
				break
			}
			_ = flow.SetReadDeadline(time.Now().Add(udpIdle))
			if _, err := u.local.WriteToUDPAddrPort(datagram[:n], from); err != nil {
				break
			}
		}
		u.mu.Lock()
		delete(u.flows, from)
		u.mu.Unlock()
		_ = flow.Close()
	})
	return flow, nil
}

func (u *udpPort) closeAll() {
	u.mu.Lock()
	for _, flow := range u.flows {
		_ = flow.Close()
	}
	u.mu.Unlock()
	u.tasks.Wait()
}

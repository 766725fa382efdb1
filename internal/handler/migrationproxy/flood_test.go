package migrationproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/greeting"
)

// Connections of hosts that send nothing fill the room for strangers again and again, but a migration must get through
// at its first call. Afterwards its host must have room of its own.
func TestAFloodOfGreetingsKeepsNoMigrationOut(t *testing.T) {
	p := meet(t)
	p.expect(&Facts{}, newEar())
	flood := &addressed{opened: make(chan net.Conn)}
	flooding := p.serveAlso(flood)
	defer flooding()
	for i := range 2 * greeting.MaxOpen {
		flood.open(t, net.IPv4(10, 1, byte(i>>8), byte(i)))
	}
	for n := range 3 {
		conn, err := p.outgoing().Dial(t.Context(), migrationwire.Control)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		_ = conn.Close()
		for i := range greeting.MaxOpen {
			flood.open(t, net.IPv4(10, 2+byte(n), byte(i>>8), byte(i)))
		}
	}
	if n := p.server.greetings.Open(); n > 2*greeting.MaxOpen {
		t.Errorf("%d connections are at their beginning", n)
	}
}

// Eleven pods of one tenant hold more connections open than there is room for, and open another one for each that is
// dropped. A guest of another tenant must migrate meanwhile: by TCP, with the listener of a node.
func TestAFloodByTCPKeepsNoMigrationOut(t *testing.T) {
	const pods, each = 11, 2 * greeting.MaxOpen / 11
	p := meet(t)
	target := p.qemu()
	e := newEar()
	p.expect(&Facts{}, e)
	ctx, stop := context.WithCancel(t.Context())
	var dropped atomic.Int64
	var flooding sync.WaitGroup
	defer flooding.Wait()
	defer stop()
	for pod := range pods {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(pod+1))}}
		for range each {
			flooding.Go(func() {
				for ctx.Err() == nil {
					conn, err := from.DialContext(ctx, "tcp", p.address.String())
					if err != nil {
						continue
					}
					end := context.AfterFunc(ctx, func() { _ = conn.Close() })
					_, _ = conn.Read(make([]byte, 1)) // until it is dropped
					end()
					_ = conn.Close()
					dropped.Add(1)
				}
			})
		}
	}
	for round := range 3 {
		was, deadline := dropped.Load(), time.Now().Add(patience)
		for tick := time.Tick(time.Millisecond); dropped.Load() < was+greeting.MaxOpen; <-tick {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections were dropped, which is no flood", dropped.Load()-was)
			}
		}
		conn, err := p.outgoing().Dial(ctx, migrationwire.Control)
		if err != nil {
			t.Fatalf("call %d: %v", round, err)
		}
		_ = conn.Close()
	}
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours})
	there := p.dialSource()
	passes(t, there, accept(t, target), "the guest's memory")
	var mine Facts
	mine.Publish(migrationwire.Released)
	defer p.converse(p.outgoing(), &mine, newEar())()
	e.awaitKinds(t, migrationwire.Released)
	if n := p.server.greetings.Open(); n > 2*greeting.MaxOpen {
		t.Errorf("%d connections are at their beginning", n)
	}
}

// addressed is a listener whose connections have addresses of the test's choice.
type addressed struct{ opened chan net.Conn }

func (a *addressed) Accept() (net.Conn, error) {
	conn, ok := <-a.opened
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (a *addressed) Close() error   { return nil }
func (a *addressed) Addr() net.Addr { return &net.TCPAddr{} }

// open makes a connection on which nothing is sent.
func (a *addressed) open(t *testing.T, ip net.IP) {
	t.Helper()
	caller, called := net.Pipe()
	t.Cleanup(func() { _ = caller.Close() })
	a.opened <- &callFrom{called, &net.TCPAddr{IP: ip, Port: 1}}
}

type callFrom struct {
	net.Conn
	from net.Addr
}

func (c *callFrom) RemoteAddr() net.Addr { return c.from }

// serveAlso serves another listener until end is called.
func (p *pair) serveAlso(a *addressed) (end func()) {
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(p.t.Context())
	go func() {
		defer close(ended)
		p.server.Serve(ctx, a)
	}()
	return func() {
		cancel()
		close(a.opened)
		<-ended
	}
}

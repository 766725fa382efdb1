package greeting

import (
	"fmt"
	"net"
	"testing"
)

func from(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

// held is a connection in a test.
type held struct {
	*Caller
	dropped bool
}

func enter(r *Rooms, ip string) *held {
	h := &held{}
	h.Caller = r.Enter(from(ip), func() { h.dropped = true })
	return h
}

// One host's connections must displace each other, and nobody else's.
func TestAHostThatFloodsDisplacesItsOwn(t *testing.T) {
	var r Rooms
	first := enter(&r, "10.0.0.1")
	quiet := []*held{enter(&r, "10.0.0.2"), enter(&r, "10.0.0.2"), enter(&r, "fd00::1")}
	for range 3 * MaxOpen {
		enter(&r, "::ffff:10.0.0.1") // another form of the same host's address
	}
	if !first.dropped {
		t.Error("the oldest connection of the host is still there")
	}
	for i, h := range quiet {
		if h.dropped {
			t.Errorf("connection %d of another host was dropped", i)
		}
	}
	if n := r.Open(); n != MaxOpen {
		t.Errorf("%d connections are open, want %d", n, MaxOpen)
	}
}

// Hosts fill the room with one connection each: the oldest must go for a newcomer.
func TestManyHostsKeepNobodyOut(t *testing.T) {
	var r Rooms
	var flood []*held
	for i := range MaxOpen {
		flood = append(flood, enter(&r, fmt.Sprintf("10.1.%d.%d", i/256, i%256)))
	}
	newcomer := enter(&r, "10.0.0.2")
	if !flood[0].dropped || flood[1].dropped || newcomer.dropped {
		t.Errorf("dropped are the oldest %v, the next %v, the newcomer %v", flood[0].dropped, flood[1].dropped, newcomer.dropped)
	}
	if flood[0].Proven() {
		t.Error("a connection that was dropped is taken")
	}
	if !newcomer.Proven() {
		t.Error("the newcomer's certificate comes too late")
	}
}

// Hosts without a certificate must take no room from one that has shown one.
func TestAHostThatIsKnownHasRoomOfItsOwn(t *testing.T) {
	var r Rooms
	known := enter(&r, "10.0.0.2")
	if !known.Proven() {
		t.Fatal("it was dropped")
	}
	known.Leave()
	var calls []*held
	for range 17 {
		calls = append(calls, enter(&r, "10.0.0.2"))
	}
	for i := range 8 * MaxOpen {
		enter(&r, fmt.Sprintf("10.1.%d.%d", i/256, i%256))
	}
	for i, call := range calls {
		if call.dropped {
			t.Errorf("call %d of a known host was dropped", i)
		}
	}
	if n := r.Open(); n != MaxOpen+len(calls) {
		t.Errorf("%d connections are open, want %d", n, MaxOpen+len(calls))
	}
}

// The memory of callers must be bounded, and nothing may be left of ended connections.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	var r Rooms
	for i := range 2 * maxTrusted {
		c := enter(&r, fmt.Sprintf("10.%d.%d.1", i/256, i%256))
		c.Proven()
		c.Leave()
		c.Leave()
	}
	if len(r.hosts) != maxTrusted || r.Open() != 0 {
		t.Errorf("%d hosts and %d connections are remembered", len(r.hosts), r.Open())
	}
	if last := hostOf(from(fmt.Sprintf("10.%d.%d.1", (2*maxTrusted-1)/256, (2*maxTrusted-1)%256))); r.hosts[maxTrusted-1] != last {
		t.Error("the latest host was forgotten")
	}
}

// Addresses of one IPv6 network must count as one host.
func TestAHostOfIPv6IsItsNetwork(t *testing.T) {
	if hostOf(from("fd00::1")) != hostOf(from("fd00::2")) || hostOf(from("fd00:0:0:1::1")) == hostOf(from("fd00::1")) {
		t.Error("hosts of IPv6 are mixed up")
	}
}

func TestRoomsHaveTheirSize(t *testing.T) {
	r := Rooms{Size: 3}
	known := enter(&r, "10.0.0.2")
	known.Proven()
	for i := range 10 {
		enter(&r, fmt.Sprintf("10.0.1.%d", i))
	}
	if n := r.Open(); n != 4 || known.dropped {
		t.Errorf("%d connections are open, want three of strangers and the known one (dropped: %v)", n, known.dropped)
	}
	if host := known.Host().String(); host != "10.0.0.2" {
		t.Errorf("the known one is %s", host)
	}
}

// Package greeting bounds the connections whose caller is not known yet.
//
// It owns their number and which of them goes when there are too many. A newcomer is always taken; it
// displaces the oldest connection of the host that has the most. So whoever opens connections and says
// nothing displaces its own. Hosts from which a certificate, or another proof, was shown lately have room of their own, which
// no other host can take. The package must not read from a connection, or judge who calls.
package greeting

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// MaxOpen is how many connections a room holds that says no number: each costs some 70 KiB with its buffers.
	MaxOpen = 256
	// maxTrusted is how many hosts are remembered for a proof that was shown from there.
	maxTrusted = 1024
)

// Rooms are where connections are until their caller is known. The zero value is empty.
type Rooms struct {
	// Size is how many connections a room holds; 0 for MaxOpen. It is set before the first one comes.
	Size int

	mu sync.Mutex
	// strangers are the connections of hosts that have proven nothing, trusted those of the others.
	strangers, trusted room
	// hosts are those that have proven themselves, the latest last.
	hosts []netip.Addr
}

// room is connections, the oldest first.
type room struct{ open []*Caller }

// Caller is a connection whose caller is not known yet.
type Caller struct {
	rooms *Rooms
	host  netip.Addr
	drop  func()
}

// Enter takes a connection. drop is called when the connection has to make room for another one; it must not
// block.
func (r *Rooms) Enter(from net.Addr, drop func()) *Caller {
	c := &Caller{rooms: r, host: hostOf(from), drop: drop}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.hosts, c.host) {
		r.trusted.add(c, r.size())
	} else {
		r.strangers.add(c, r.size())
	}
	return c
}

// Proven notes that the caller has shown who it is. It reports false if the connection was dropped
// before.
func (c *Caller) Proven() bool {
	r := c.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.strangers.remove(c) && !r.trusted.remove(c) {
		return false
	}
	r.trusted.add(c, r.size())
	r.hosts = append(slices.DeleteFunc(r.hosts, func(h netip.Addr) bool { return h == c.host }), c.host)
	if len(r.hosts) > maxTrusted {
		r.hosts = slices.Delete(r.hosts, 0, len(r.hosts)-maxTrusted)
	}
	return true
}

// Leave gives the room of the connection back. It can be repeated.
func (c *Caller) Leave() {
	c.rooms.mu.Lock()
	defer c.rooms.mu.Unlock()
	if !c.rooms.strangers.remove(c) {
		c.rooms.trusted.remove(c)
	}
}

// Host is who has opened the connection: an address, or with IPv6 the network of one.
func (c *Caller) Host() netip.Addr { return c.host }

// Open is how many connections there are.
func (r *Rooms) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.strangers.open) + len(r.trusted.open)
}

// size is how many connections a room holds.
func (r *Rooms) size() int { return cmp.Or(r.Size, MaxOpen) }

// add takes a connection, and drops another one if there are as many as the room holds.
func (r *room) add(c *Caller, most int) {
	if len(r.open) >= most {
		victim := r.oldestOfMost()
		r.remove(victim)
		victim.drop()
	}
	r.open = append(r.open, c)
}

func (r *room) remove(c *Caller) bool {
	at := slices.Index(r.open, c)
	if at < 0 {
		return false
	}
	r.open = slices.Delete(r.open, at, at+1)
	return true
}

// oldestOfMost is the oldest connection of the host that has the most; of several such hosts, the oldest of all.
func (r *room) oldestOfMost() *Caller {
	count := map[netip.Addr]int{}
	most := 0
	for _, c := range r.open {
		count[c.host]++
		most = max(most, count[c.host])
	}
	return r.open[slices.IndexFunc(r.open, func(c *Caller) bool { return count[c.host] == most })]
}

// hostOf is the address without its port. With IPv6 a host has a network of its own, and
// counts as that.
func hostOf(address net.Addr) netip.Addr {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.Addr{}
	}
	host := parsed.Addr().Unmap().WithZone("")
	if host.Is4() {
		return host
	}
	network, err := host.Prefix(64)
	if err != nil {
		return host
	}
	return network.Addr()
}

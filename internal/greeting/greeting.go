// Package greeting limits connections whose caller is not known yet: it owns which one is dropped when there are too
// many. A new connection is always accepted; it displaces the oldest connection of the host that has the most. So a host
// that opens connections and sends nothing displaces its own. Hosts that recently proved themselves have separate room
// that no other host can take. The package must not read from a connection, or judge its caller.
package greeting

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// MaxOpen is the default size of a room. Each connection costs some 70 KiB with its buffers.
	MaxOpen = 256
	// maxTrusted is how many hosts are remembered for a proof.
	maxTrusted = 1024
)

// Rooms hold connections until their caller is known. The zero value is empty.
type Rooms struct {
	// Size is of a room, 0 for MaxOpen. It must be set before the first connection.
	Size int

	mu sync.Mutex
	// strangers has the connections of hosts without a proof, trusted those of the others.
	strangers, trusted room
	// hosts have proven themselves, the latest last.
	hosts []netip.Addr
}

// room has connections, the oldest first.
type room struct{ open []*Caller }

// Caller is a connection of an unknown caller.
type Caller struct {
	rooms *Rooms
	host  netip.Addr
	drop  func()
}

// Enter adds a connection. drop, which must not block, is called if it has to make room for another one.
func (r *Rooms) Enter(from net.Addr, drop func()) *Caller {
	c := &Caller{rooms: r, host: hostOf(from), drop: drop}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enter(c)
	return c
}

func (r *Rooms) enter(c *Caller) {
	if slices.Contains(r.hosts, c.host) {
		r.trusted.add(c, r.size())
	} else {
		r.strangers.add(c, r.size())
	}
}

// Proven records a proof. It reports false if the connection was dropped before.
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

// Leave releases the place; it can be repeated.
func (c *Caller) Leave() {
	c.rooms.mu.Lock()
	defer c.rooms.mu.Unlock()
	if !c.rooms.strangers.remove(c) {
		c.rooms.trusted.remove(c)
	}
}

// Return takes a place again after Leave, on the same connection.
func (c *Caller) Return() {
	r := c.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enter(c)
}

// Host returns the caller's IPv4 address, or the network of its IPv6 address.
func (c *Caller) Host() netip.Addr { return c.host }

// Open returns the number of connections.
func (r *Rooms) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.strangers.open) + len(r.trusted.open)
}

func (r *Rooms) size() int { return cmp.Or(r.Size, MaxOpen) }

func (r *room) add(c *Caller, limit int) {
	if len(r.open) >= limit {
		// The oldest connection of the host that has the most makes room.
		count := map[netip.Addr]int{}
		most := 0
		for _, c := range r.open {
			count[c.host]++
			most = max(most, count[c.host])
		}
		victim := r.open[slices.IndexFunc(r.open, func(c *Caller) bool { return count[c.host] == most })]
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

// With IPv6 a host counts as its network, which is its own.
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

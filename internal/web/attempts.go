package web

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Attempts to sign in: each asks the API server once. Those of all callers are bounded for the API server's sake, those of
// one so that he doesn't keep others from signing in.
const (
	attemptsEvery    = 200 * time.Millisecond
	attemptsBurst    = 20
	allAttemptsEvery = attemptsEvery / 5
	allAttemptsBurst = 5 * attemptsBurst
	// maxCallers bounds the callers that are remembered. Then all are forgotten.
	maxCallers = 1024
)

// attempts counts attempts to sign in.
type attempts struct {
	all *rate.Limiter

	mu    sync.Mutex
	every rate.Limit
	of    map[caller]*rate.Limiter
}

// caller is who seems to sign in: the other end of the connection, and the address that a proxy there says it was asked
// by. A caller without a proxy may say any, so that the latter gives no right.
type caller struct{ connected, forwarded netip.Addr }

func newAttempts() *attempts {
	return &attempts{
		all: rate.NewLimiter(rate.Every(allAttemptsEvery), allAttemptsBurst), every: rate.Every(attemptsEvery), of: map[caller]*rate.Limiter{},
	}
}

func (a *attempts) allow(c caller) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.of[c]
	if one == nil {
		if len(a.of) >= maxCallers {
			clear(a.of)
		}
		one = rate.NewLimiter(a.every, attemptsBurst)
		a.of[c] = one
	}
	return one.Allow() && a.all.Allow()
}

func callerOf(r *http.Request) caller {
	connected, _ := netip.ParseAddrPort(r.RemoteAddr) // another form is nobody's own
	found := caller{connected: networkOf(connected.Addr())}
	if lines := r.Header["X-Forwarded-For"]; len(lines) > 0 {
		// A proxy adds its own word at the end.
		line := lines[len(lines)-1]
		forwarded, _ := netip.ParseAddr(strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:]))
		found.forwarded = networkOf(forwarded)
	}
	return found
}

// networkOf returns an IPv4 address as it is, and the network of an IPv6 address, which is one caller's.
func networkOf(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if network, err := address.Prefix(64); address.Is6() && err == nil {
		return network.Addr()
	}
	return address
}

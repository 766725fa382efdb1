package nodesigner

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// every and burst are what a node gets: a virt-handler that restarts again and
	// again does not wait, and a node that is taken over costs the API server and
	// virt-api a request every ten seconds.
	every = 10 * time.Second
	burst = 30
	// maxNodes bounds the memory; nodes come from tokens, so it is far more than
	// there are.
	maxNodes = 20000
)

// pace bounds how many requests of a node are worked on. A node has one request
// at a time (the policy virt-handler-certificates); it could still delete it
// and ask again without an end.
type pace struct {
	nodes map[string]*turn
}

// turn is what one requester has left.
type turn struct {
	limiter *rate.Limiter
	// last was let through; it is not counted twice.
	last types.UID
}

func newPace() *pace { return &pace{nodes: map[string]*turn{}} }

// wait is how long the request must wait; zero lets it through. All requesters that
// have not proven a node share the one with the empty name.
func (p *pace) wait(node string, request types.UID, now time.Time) time.Duration {
	if len(p.nodes) >= maxNodes {
		clear(p.nodes)
	}
	t := p.nodes[node]
	if t == nil {
		t = &turn{limiter: rate.NewLimiter(rate.Every(every), burst)}
		p.nodes[node] = t
	}
	if t.last == request && request != "" {
		return 0
	}
	if !t.limiter.AllowN(now, 1) {
		return every
	}
	t.last = request
	return 0
}

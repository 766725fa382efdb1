package nodesigner

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// A virt-handler that restarts repeatedly does not wait, and a compromised node costs the API server and virt-api
	// one request every ten seconds.
	every = 10 * time.Second
	burst = 30
	// maxNodes bounds the memory. Nodes are proven by tokens, so there are far fewer.
	maxNodes = 20000
)

// pace limits the requests of a node: it has one at a time (the policy virt-handler-certificates), but could delete and
// create it without end.
type pace struct {
	nodes map[string]*turn
}

type turn struct {
	limiter *rate.Limiter
	// last is the last admitted request, which is not counted twice.
	last types.UID
}

func newPace() *pace { return &pace{nodes: map[string]*turn{}} }

// wait returns how long the request must wait, zero if it is admitted. All requesters without a proven node share one
// entry.
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

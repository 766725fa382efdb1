package clusterconfig

import (
	"cmp"
	"math"

	v1 "kubevirt.io/api/core/v1"
)

// MaxVerbosity is the highest log level: above it, the API server's client logs the contents of Secrets (decision 591).
const MaxVerbosity = 7

// Verbosity is the log level of each component: from 0, which suits an administrator, to MaxVerbosity.
type Verbosity struct {
	API, Controller, Handler int
	// Nodes are the levels of individual nodes' virt-handlers.
	Nodes map[string]int
}

// HandlerOn returns the level of virt-handler on a node.
func (v Verbosity) HandlerOn(node string) int {
	if level, named := v.Nodes[node]; named {
		return level
	}
	return v.Handler
}

func verbosity(d *v1.DeveloperConfiguration) Verbosity {
	if d == nil || d.LogVerbosity == nil {
		return Verbosity{}
	}
	config := d.LogVerbosity
	level := func(value uint) int { return int(min(value, MaxVerbosity)) }
	out := Verbosity{API: level(config.VirtAPI), Controller: level(config.VirtController), Handler: level(config.VirtHandler), Nodes: map[string]int{}}
	for node, value := range config.NodeVerbosity {
		out.Nodes[node] = level(value)
	}
	return out
}

// Rate limits a client's requests to the API server; zero is no limit.
type Rate struct {
	QPS   float32
	Burst int
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r.QPS > 0 }

// Rates are the limits of the components' clients, by default none: the API server has priority and fairness.
type Rates struct {
	API, Webhook, Controller, Handler Rate
}

func rate(config *v1.ReloadableComponentConfiguration) Rate {
	if config == nil || config.RestClient == nil || config.RestClient.RateLimiter == nil {
		return Rate{}
	}
	bucket := config.RestClient.RateLimiter.TokenBucketRateLimiter
	if bucket == nil || bucket.QPS <= 0 {
		return Rate{}
	}
	return Rate{QPS: bucket.QPS, Burst: cmp.Or(max(bucket.Burst, 0), int(math.Ceil(float64(bucket.QPS))))}
}

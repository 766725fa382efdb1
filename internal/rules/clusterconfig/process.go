package clusterconfig

import (
	"cmp"
	"math"

	v1 "kubevirt.io/api/core/v1"
)

// MaxVerbosity is the most that a component logs. Above it, the client of the API server logs the bodies of answers, with
// what Secrets hold (decision 591).
const MaxVerbosity = 7

// Verbosity is how much components log (developerConfiguration.logVerbosity): 0, which tells what an administrator
// needs, up to MaxVerbosity.
type Verbosity struct {
	API, Controller, Handler int
	// Nodes are the levels of virt-handlers that have their own, by node.
	Nodes map[string]int
}

// HandlerOn is that of virt-handler on a node.
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

// Rate is how fast a client may ask the API server: Burst requests at once, and QPS in a second. The zero value is no limit.
type Rate struct {
	QPS   float32
	Burst int
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r.QPS > 0 }

// Rates are those of the components' clients. There is no limit unless the KubeVirt object has one: the API server's own
// fairness is.
type Rates struct {
	API, Webhook, Controller, Handler Rate
}

func rates(c *v1.KubeVirtConfiguration) Rates {
	return Rates{
		API: rate(c.APIConfiguration), Webhook: rate(c.WebhookConfiguration),
		Controller: rate(c.ControllerConfiguration), Handler: rate(c.HandlerConfiguration),
	}
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

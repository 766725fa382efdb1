// Package process is how a process of Drydock's follows the KubeVirt object while it runs: how much it logs, and how fast
// it asks the API server.
//
// It owns nothing in the cluster. What the KubeVirt object means is decided in package clusterconfig.
package process

import (
	"context"
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// SetVerbosity has the process log up to this level.
func SetVerbosity(level int) {
	var global klog.Level
	if err := global.Set(strconv.Itoa(level)); err != nil {
		klog.Background().Error(err, "setting how much is logged", "level", level)
	}
}

// Pace limits how fast a client asks the API server. The zero value does not limit it. A pace may be shared by several
// clients, and changed while they wait: who waits already does so by the earlier one.
type Pace struct {
	limit atomic.Pointer[limit]
}

var _ flowcontrol.RateLimiter = (*Pace)(nil)

type limit struct {
	rate   clusterconfig.Rate
	bucket flowcontrol.RateLimiter
}

// Set limits the client from now on. An equal rate changes nothing, so that nobody fills the bucket by setting it again.
func (p *Pace) Set(rate clusterconfig.Rate) {
	switch now := p.limit.Load(); {
	case !rate.Limited():
		p.limit.Store(nil)
	case now == nil || now.rate != rate:
		p.limit.Store(&limit{rate: rate, bucket: flowcontrol.NewTokenBucketRateLimiter(rate.QPS, rate.Burst)})
	}
}

// Wait returns when a request may be sent, or ctx has ended.
func (p *Pace) Wait(ctx context.Context) error {
	if now := p.limit.Load(); now != nil {
		return now.bucket.Wait(ctx)
	}
	return nil
}

// Accept waits, too, without end.
func (p *Pace) Accept() {
	if now := p.limit.Load(); now != nil {
		now.bucket.Accept()
	}
}

// TryAccept reports whether a request may be sent at once.
func (p *Pace) TryAccept() bool {
	now := p.limit.Load()
	return now == nil || now.bucket.TryAccept()
}

// Stop does nothing: a bucket holds nothing that must be given back.
func (*Pace) Stop() {}

// QPS is the requests in a second that are let through, -1 without a limit.
func (p *Pace) QPS() float32 {
	if now := p.limit.Load(); now != nil {
		return now.bucket.QPS()
	}
	return -1
}

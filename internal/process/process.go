// Package process applies the KubeVirt object's settings to a running process: its log level, and the rate of its
// requests to the API server. It must not interpret the KubeVirt object: clusterconfig does.
package process

import (
	"context"
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// SetVerbosity sets the process's log level.
func SetVerbosity(level int) {
	var global klog.Level
	if err := global.Set(strconv.Itoa(level)); err != nil {
		klog.Background().Error(err, "setting how much is logged", "level", level)
	}
}

// Pace limits clients' requests to the API server. The zero value is unlimited. A request that already waits keeps the
// earlier limit.
type Pace struct {
	limit atomic.Pointer[limit]
}

var _ flowcontrol.RateLimiter = (*Pace)(nil)

type limit struct {
	rate   clusterconfig.Rate
	bucket flowcontrol.RateLimiter
}

// Set ignores an equal rate, so that the bucket is not refilled.
func (p *Pace) Set(rate clusterconfig.Rate) {
	switch now := p.limit.Load(); {
	case !rate.Limited():
		p.limit.Store(nil)
	case now == nil || now.rate != rate:
		p.limit.Store(&limit{rate: rate, bucket: flowcontrol.NewTokenBucketRateLimiter(rate.QPS, rate.Burst)})
	}
}

// Wait returns when a request may be sent, or when ctx ends.
func (p *Pace) Wait(ctx context.Context) error {
	if now := p.limit.Load(); now != nil {
		return now.bucket.Wait(ctx)
	}
	return nil
}

// Accept is Wait without an end.
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

// Stop does nothing.
func (*Pace) Stop() {}

// QPS returns the limit in requests per second, -1 for none.
func (p *Pace) QPS() float32 {
	if now := p.limit.Load(); now != nil {
		return now.bucket.QPS()
	}
	return -1
}

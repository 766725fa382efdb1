package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func TestAPaceFollowsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		many := func() time.Duration {
			start := time.Now()
			for range 20 {
				if err := p.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(start)
		}
		if took := many(); took != 0 || p.QPS() != -1 || !p.TryAccept() {
			t.Errorf("without a limit 20 requests took %s", took)
		}
		p.Set(clusterconfig.Rate{QPS: 5, Burst: 10})
		if took := many(); took < 1900*time.Millisecond || took > 2100*time.Millisecond || p.QPS() != 5 {
			t.Errorf("20 requests, 10 of them at once and 5 in a second, took %s", took)
		}
		// Setting the same rate again must not fill the bucket.
		p.Set(clusterconfig.Rate{QPS: 5, Burst: 10})
		if p.TryAccept() {
			t.Error("the bucket is full again")
		}
		start := time.Now()
		if p.Accept(); time.Since(start) == 0 {
			t.Error("it does not wait")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("who has ended waits: %v", err)
		}
		p.Set(clusterconfig.Rate{})
		if took := many(); took != 0 {
			t.Errorf("when the limit is gone 20 requests took %s", took)
		}
		p.Accept()
		p.Stop()
	})
}

func TestVerbosity(t *testing.T) {
	defer SetVerbosity(0)
	for _, level := range []int{0, 5, 0} {
		SetVerbosity(level)
		if on := klog.V(5).Enabled(); on != (level == 5) {
			t.Errorf("at level %d, messages of level 5: %v", level, on)
		}
	}
}

// Package backoff says how long what has failed, or waits, is left alone before it is tried again,
// and which of several waits ends first.
//
// It owns the one way in which such delays grow; the calculation is apimachinery's. How
// short and how long a delay may be is for its callers to say. What links no Kubernetes
// (virt-launcher, the import worker) doesn't import it.
package backoff

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Doubling returns delays of which each is twice the last one, up to the longest, which
// then comes again and again.
func Doubling(first, longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Cap: longest, Steps: math.MaxInt32}
}

// Delay returns the delay after so many failures in a row, none for none: first after
// the first one, then as Doubling has it.
func Delay(first, longest time.Duration, failures int) time.Duration {
	// So many doublings are past every longest delay.
	const enough = 64
	delays, delay := Doubling(first, longest), time.Duration(0)
	for range min(failures, enough) {
		delay = delays.Step()
	}
	return delay
}

// Growing returns how long to leave alone what has waited for so long: a quarter of that,
// within the bounds. It needs no memory but the time at which the wait began.
func Growing(waited, shortest, longest time.Duration) time.Duration {
	return max(shortest, min(waited/4, longest))
}

// Sooner returns the shorter of two waits, each of which may be none, which is zero: then
// it is the other one.
func Sooner(wait, other time.Duration) time.Duration {
	if wait == 0 || other == 0 {
		return max(wait, other)
	}
	return min(wait, other)
}

// Retry tries until it succeeds or ctx ends, with the delays in between. Unlike
// wait.ExponentialBackoffWithContext it doesn't give up when the longest is reached.
func Retry(ctx context.Context, delays wait.Backoff, try func(context.Context) bool) {
	// Its only error is that of ctx.
	_ = delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { return try(ctx), nil })
}

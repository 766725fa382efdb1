// Package backoff calculates the delay before the next attempt of a failed or waiting operation, and the shorter of two
// waits. Callers choose the bounds. Programs that link no Kubernetes packages (virt-launcher, the import worker) must
// not import it.
package backoff

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Doubling returns delays that double up to the longest, which then repeats.
func Doubling(first, longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Cap: longest, Steps: math.MaxInt32}
}

// Delay returns the delay by Doubling after that many failures in a row, zero for none.
func Delay(first, longest time.Duration, failures int) time.Duration {
	// 64 doublings exceed every longest delay.
	const enough = 64
	delays, delay := Doubling(first, longest), time.Duration(0)
	for range min(failures, enough) {
		delay = delays.Step()
	}
	return delay
}

// Growing returns a quarter of the time waited, within the bounds. Its only state is the beginning of the wait.
func Growing(waited, shortest, longest time.Duration) time.Duration {
	return max(shortest, min(waited/4, longest))
}

// Sooner returns the shorter wait, where zero means none.
func Sooner(wait, other time.Duration) time.Duration {
	if wait == 0 || other == 0 {
		return max(wait, other)
	}
	return min(wait, other)
}

// Retry tries until it succeeds or ctx ends. Unlike wait.ExponentialBackoffWithContext it doesn't give up at the
// longest delay.
func Retry(ctx context.Context, delays wait.Backoff, try func(context.Context) bool) {
	// The only error is that of ctx.
	_ = delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { return try(ctx), nil })
}

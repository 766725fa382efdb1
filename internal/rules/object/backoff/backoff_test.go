package backoff

import (
	"context"
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	for name, c := range map[string]struct {
		first, longest time.Duration
		failures       int
		want           time.Duration
	}{
		"nothing has failed":                     {time.Second, time.Minute, 0, 0},
		"once":                                   {time.Second, time.Minute, 1, time.Second},
		"twice":                                  {time.Second, time.Minute, 2, 2 * time.Second},
		"as often as the delay may grow":         {time.Second, time.Minute, 6, 32 * time.Second},
		"then it is the longest":                 {time.Second, time.Minute, 7, time.Minute},
		"and stays so":                           {time.Second, time.Minute, 8, time.Minute},
		"a longest that doubling meets":          {time.Second, 4 * time.Second, 3, 4 * time.Second},
		"for ever":                               {10 * time.Millisecond, 30 * time.Second, 1 << 40, 30 * time.Second},
		"a first that is the longest":            {time.Second, time.Second, 5, time.Second},
		"a nanosecond, up to the longest of all": {1, 1<<63 - 1, 63, 1 << 62},
	} {
		if got := Delay(c.first, c.longest, c.failures); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestGrowing(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		-time.Minute: 5 * time.Second, 0: 5 * time.Second, 20 * time.Second: 5 * time.Second,
		40 * time.Second: 10 * time.Second, 4 * time.Minute: time.Minute, time.Hour: time.Minute,
	} {
		if got := Growing(waited, 5*time.Second, time.Minute); got != want {
			t.Errorf("after %v: %v, want %v", waited, got, want)
		}
	}
}

func TestSooner(t *testing.T) {
	for name, c := range map[string]struct{ wait, other, want time.Duration }{
		"nothing is waited for":          {0, 0, 0},
		"the first of two is shorter":    {time.Second, time.Minute, time.Second},
		"both are the same":              {time.Second, time.Second, time.Second},
		"one alone, however long it is":  {time.Hour, 0, time.Hour},
		"one alone, however short it is": {1, 0, 1},
	} {
		if got := Sooner(c.wait, c.other); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := Sooner(c.other, c.wait); got != c.want {
			t.Errorf("%s, in the other order: %v, want %v", name, got, c.want)
		}
	}
}

// TestRetryDoesNotGiveUp retries far more often than it takes to reach the longest delay.
func TestRetryDoesNotGiveUp(t *testing.T) {
	tries := 0
	Retry(t.Context(), Doubling(time.Nanosecond, time.Microsecond), func(context.Context) bool {
		tries++
		return tries == 100
	})
	if tries != 100 {
		t.Errorf("tried %d times", tries)
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	Retry(ctx, Doubling(time.Nanosecond, time.Hour), func(context.Context) bool {
		tries++
		cancel()
		return false
	})
	if tries != 1 {
		t.Errorf("tried %d times", tries)
	}
}

package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// The kubelet warns of each failed probe, so the answer must wait until it is known.
func TestReadinessIsAnsweredWhenItIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		serves, known bool
		ready         bool
		after         time.Duration
	}{
		"it comes":          {true, true, true, 2 * time.Second},
		"nothing is served": {false, true, false, time.Minute},
		"it is not known":   {true, false, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := make(chan struct{})
				p := &served{serving: make(chan struct{}), known: known}
				if test.serves {
					time.AfterFunc(time.Second, func() { close(p.serving) })
				}
				if test.known {
					time.AfterFunc(2*time.Second, func() { close(known) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begun := time.Now()
				err := p.ready(httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
				if (err == nil) != test.ready || time.Since(begun) != test.after {
					t.Errorf("it answers %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

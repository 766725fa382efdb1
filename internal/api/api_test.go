package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// The kubelet warns of each answer that says no.
func TestReadinessIsAnsweredWhenItIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		serves, known bool
		code          int
		after         time.Duration
	}{
		"it comes":          {true, true, http.StatusOK, 2 * time.Second},
		"nothing is served": {false, true, http.StatusServiceUnavailable, time.Minute},
		"it is not known":   {true, false, http.StatusServiceUnavailable, time.Minute},
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
				answer, begun := httptest.NewRecorder(), time.Now()
				p.readyz(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
				if answer.Code != test.code || time.Since(begun) != test.after {
					t.Errorf("it answers %d after %v", answer.Code, time.Since(begun))
				}
			})
		})
	}
}

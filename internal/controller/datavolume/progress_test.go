package datavolume

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestAWorkerIsBelievedAsFarAsItMatters(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("virt-controller was sent elsewhere") }))
	defer elsewhere.Close()
	// A busy machine answers late.
	defer func(usual time.Duration) { direct.Timeout = usual }(direct.Timeout)
	direct.Timeout = 4 * time.Minute
	tests := map[string]struct {
		answer http.HandlerFunc
		want   *transfer.Progress
	}{
		"its progress": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"total":10,"done":5,"step":"copying"}`))
			},
			&transfer.Progress{Total: 10, Done: 5, Step: "copying"},
		},
		"no answer that goes on for ever": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"step":"` + strings.Repeat("x", maxProgress) + `"}`))
			}, nil,
		},
		"no headers that go on for ever": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("A", strings.Repeat("x", 2*maxHeader))
				_, _ = w.Write([]byte(`{"total":10,"done":5,"step":"copying"}`))
			}, nil,
		},
		"no redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			got, err := ask(t.Context(), server.URL)
			if (err == nil) != (test.want != nil) || test.want != nil && *got != *test.want {
				t.Errorf("got %+v (%v), want %+v", got, err, test.want)
			}
		})
	}
}

// TestALostConnectionIsToldFromASlowWorker checks that a worker that refuses or is slow counts as reachable.
func TestALostConnectionIsToldFromASlowWorker(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, at := range map[string]string{"slow": slow.URL, "gone": gone.URL} {
		if _, err := ask(t.Context(), at); err == nil || noConnection(err) {
			t.Errorf("a worker that is %s counts as one that can't be reached: %v", name, err)
		}
	}
	lost := fmt.Errorf("asking: %w", &url.Error{Op: "Get", URL: "http://x", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}})
	if !noConnection(lost) {
		t.Errorf("%v is no lost connection", lost)
	}
}

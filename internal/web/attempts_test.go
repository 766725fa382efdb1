package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

func TestAttemptsToSignInAreBounded(t *testing.T) {
	var asked atomic.Int32
	b := openCluster(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		knowing(empty).ServeHTTP(w, r)
	}))
	// As many as at one moment.
	b.server.signIn.attempts.every = 0
	b.server.signIn.attempts.all.SetLimit(0)
	refused := 0
	attempt := func(from string) {
		if b.do("POST", "/session", `{"token":"bad"}`, "Content-Type: application/json", "X-Forwarded-For: "+from).StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	for range attemptsBurst + 10 {
		attempt("10.0.0.1")
	}
	if asked.Load() != attemptsBurst || refused != 10 {
		t.Errorf("of one caller, the API server was asked %d times, and %d attempts were refused; want %d and 10", asked.Load(), refused, attemptsBurst)
	}
	refused = 0
	if attempt("10.0.0.2"); refused != 0 {
		t.Error("one caller keeps others from signing in")
	}
	for n := range allAttemptsBurst {
		attempt(fmt.Sprintf("10.1.%d.%d", n/256, n%256))
	}
	if asked.Load() != allAttemptsBurst {
		t.Errorf("of many callers, the API server was asked %d times; want %d", asked.Load(), allAttemptsBurst)
	}
}

func TestWhoSignsIn(t *testing.T) {
	of := func(connected string, forwarded ...string) caller {
		r := httptest.NewRequest("POST", "/session", http.NoBody)
		r.RemoteAddr = connected
		r.Header["X-Forwarded-For"] = forwarded
		return callerOf(r)
	}
	same := func(name string, want bool, one, other caller) {
		t.Helper()
		if (one == other) != want {
			t.Errorf("%s: %v and %v; want the same: %v", name, one, other, want)
		}
	}
	same("two connections of one address", true, of("10.0.0.1:1"), of("10.0.0.1:2"))
	same("two addresses", false, of("10.0.0.1:1"), of("10.0.0.2:1"))
	same("two people before one proxy", false, of("10.0.0.1:1", "192.0.2.1"), of("10.0.0.1:1", "192.0.2.2"))
	same("other words before the proxy's own", true, of("10.0.0.1:1", "1.1.1.1, 192.0.2.1"), of("10.0.0.1:1", "2.2.2.2", "3.3.3.3,192.0.2.1"))
	same("words that are no address", true, of("10.0.0.1:1", "a"), of("10.0.0.1:1", "b,,"))
	same("one network of IPv6", true, of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:1"))
	same("two networks of IPv6", false, of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"))
	same("IPv4 within IPv6", true, of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:1"))
}

func TestOnlySoManyCallersAreRemembered(t *testing.T) {
	a := newAttempts()
	for n := range 3 * maxCallers {
		r := httptest.NewRequest("POST", "/session", http.NoBody)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", n/256, n%256))
		a.allow(callerOf(r))
		if len(a.of) > maxCallers {
			t.Fatalf("it remembers %d callers; want %d at most", len(a.of), maxCallers)
		}
	}
}

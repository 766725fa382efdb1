package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/greeting"
)

// judge is an API server that knows readers by their token and counts the requests.
type judge struct {
	mu    sync.Mutex
	asked map[string]int
	// takes is the duration of an answer, unless the request is canceled. away makes it not answer.
	takes time.Duration
	away  bool
}

func (j *judge) review(ctx context.Context, token string) (verdict, error) {
	j.mu.Lock()
	if j.asked == nil {
		j.asked = map[string]int{}
	}
	j.asked[token]++
	away := j.away
	j.mu.Unlock()
	select {
	case <-time.After(j.takes):
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
	switch {
	case away:
		return verdict{}, errors.New("it is away")
	case strings.HasPrefix(token, "reader"):
		return verdict{user: token, allowed: true}, nil
	case strings.HasPrefix(token, "tenant"):
		return verdict{user: token}, nil
	}
	return verdict{}, nil
}

func (j *judge) total() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := 0
	for _, n := range j.asked {
		sum += n
	}
	return sum
}

// from sends a token from an address.
func from(t *testing.T, g *gate, rooms *greeting.Rooms, ip, token string) int {
	t.Helper()
	caller := rooms.Enter(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, func() {})
	defer caller.Leave()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	g.guard(pages).ServeHTTP(w, r.WithContext(greeting.WithCaller(t.Context(), caller)))
	return w.Code
}

func TestTheAPIServersWordIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, rooms := &judge{}, &greeting.Rooms{}
		g := newGate(j.review, logr.Discard())
		for token, test := range map[string]struct {
			code  int
			lasts time.Duration
		}{"reader": {200, allowedFor}, "tenant": {403, refusedFor}, "nobody": {401, refusedFor}} {
			ask := func(times int) {
				t.Helper()
				for range 100 {
					if code := from(t, g, rooms, "10.0.0.1", token); code != test.code {
						t.Errorf("%s: %d", token, code)
					}
				}
				if got := j.asked[token]; got != times {
					t.Errorf("%s was asked about %d times, want %d", token, got, times)
				}
			}
			ask(1)
			time.Sleep(test.lasts + time.Second)
			ask(2)
		}
	})
}

func TestStrangersCauseFewReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, rooms := &judge{}, &greeting.Rooms{}
		g := newGate(j.review, logr.Discard())
		if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 200 {
			t.Fatalf("Prometheus: %d", code)
		}
		const hour = 3600
		codes := map[int]int{}
		for second := range hour {
			for i := range 10 {
				codes[from(t, g, rooms, "10.0.0.66", fmt.Sprintf("x-%d-%d", second, i))]++
			}
			if second == 100 {
				if code := from(t, g, rooms, "10.0.0.2", "tenant"); code != 403 {
					t.Errorf("one host's flood keeps another out: %d", code)
				}
			}
			time.Sleep(time.Second)
		}
		most := hour*int(time.Second)/int(hostEvery) + hostBurst
		if n := j.total() - 2; n < most/2 || n > most || codes[401] != n || codes[401]+codes[429] != 10*hour {
			t.Errorf("%d reviews in an hour, want at most %d; it answers %v", n, most, codes)
		}
	})
}

// Many hosts together must be limited, too, but an admitted Prometheus must pass all of them.
func TestManyHostsTogetherAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, rooms := &judge{}, &greeting.Rooms{}
		g := newGate(j.review, logr.Discard())
		if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 200 {
			t.Fatalf("Prometheus: %d", code)
		}
		const minutes = 3
		for second := range minutes * 60 {
			for i := range 100 {
				from(t, g, rooms, fmt.Sprintf("10.1.%d.%d", second, i), fmt.Sprintf("x-%d-%d", second, i))
			}
			if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 200 {
				t.Fatalf("Prometheus after %d seconds of the flood: %d", second, code)
			}
			time.Sleep(time.Second)
		}
		most := minutes*60*int(time.Second)/int(allEvery) + allBurst + minutes + 1
		if n := j.total(); n < most/2 || n > most {
			t.Errorf("%d reviews, want at most %d", n, most)
		}
		if hosts, words := len(g.hosts.Keys()), len(g.refused.Keys()); hosts > maxHosts || words > maxRefused {
			t.Errorf("%d hosts and %d words are remembered", hosts, words)
		}
	})
}

// A hundred simultaneous calls with one token must ask the API server once, and a hanging request must end.
func TestReviewsAreSharedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, rooms := &judge{takes: time.Second}, &greeting.Rooms{}
		g := newGate(j.review, logr.Discard())
		var all sync.WaitGroup
		for range hostBurst {
			all.Go(func() {
				if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 200 {
					t.Errorf("Prometheus: %d", code)
				}
			})
		}
		all.Wait()
		if n := j.total(); n != 1 {
			t.Errorf("%d reviews", n)
		}
		j.takes = time.Hour
		began := time.Now()
		if code := from(t, g, rooms, "10.0.0.2", "reader-2"); code != 503 || time.Since(began) != reviewTimeout {
			t.Errorf("an API server that hangs: %d after %s", code, time.Since(began))
		}
	})
}

// A failure of the API server is no answer about a token: when it is back, it must be asked at once.
func TestAFailureIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, rooms := &judge{away: true}, &greeting.Rooms{}
		g := newGate(j.review, logr.Discard())
		if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 503 {
			t.Errorf("while it is away: %d", code)
		}
		j.away = false
		if code := from(t, g, rooms, "10.0.0.1", "reader"); code != 200 {
			t.Errorf("when it is back: %d", code)
		}
	})
}

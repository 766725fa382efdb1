package metricsserver

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"drydock.dev/drydock/internal/greeting"
)

// A token's owner must have the right to get this URL.
const path = "/metrics"

// These bound how long, and for how many tokens, the API server's verdict is remembered. A revoked right ends within
// allowedFor.
const (
	allowedFor, maxAllowed = time.Minute, 64
	refusedFor, maxRefused = 10 * time.Second, 1024
	// knownFor is how long an allowed token is exempt from the limits of reviews.
	knownFor = time.Hour
)

// These limit reviews of tokens that were never allowed, for one host and for all.
const (
	hostEvery, hostBurst = 2 * time.Second, 4
	allEvery, allBurst   = 50 * time.Millisecond, 20
	maxHosts             = 1024
	// complainEvery is for an API server that does not answer.
	complainEvery = time.Minute
)

type verdict struct {
	// user is the token's owner.
	user    string
	allowed bool
}

// gate admits callers that may read metrics. It fails closed: without the API server's verdict nobody is admitted.
type gate struct {
	review func(ctx context.Context, token string) (verdict, error)
	log    logr.Logger

	// These have verdicts, and the recently allowed tokens, by the token's hash. Strangers' tokens only get into refused.
	allowed, refused, known *cache.LRUExpireCache
	asking                  singleflight.Group

	// mu guards limit.
	mu    sync.Mutex
	hosts *cache.LRUExpireCache
	all   *rate.Limiter

	complaints rate.Sometimes
}

func newGate(review func(context.Context, string) (verdict, error), log logr.Logger) *gate {
	return &gate{
		review: review, log: log,
		allowed: cache.NewLRUExpireCache(maxAllowed), refused: cache.NewLRUExpireCache(maxRefused), known: cache.NewLRUExpireCache(maxAllowed),
		hosts: cache.NewLRUExpireCache(maxHosts), all: rate.NewLimiter(rate.Every(allEvery), allBurst),
		complaints: rate.Sometimes{Interval: complainEvery},
	}
}

func (g *gate) guard(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token = strings.TrimSpace(token)
		if token == "" || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "metrics are for those who show a token: send one in the header Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		var host netip.Addr
		caller, bounded := greeting.CallerOf(r.Context())
		if bounded {
			host = caller.Host()
		}
		key := sha256.Sum256([]byte(token))
		said, found := g.remembered(key)
		if !found {
			if !g.mayAsk(key, host) {
				w.Header().Set("Retry-After", "2")
				http.Error(w, "too many unknown tokens were shown: try again in two seconds", http.StatusTooManyRequests)
				return
			}
			var err error
			if said, err = g.ask(r.Context(), key, token); err != nil {
				g.complaints.Do(func() { g.log.Error(err, "nobody can read metrics while the API server does not say who may") })
				http.Error(w, "the API server does not say whose token this is: try again later", http.StatusServiceUnavailable)
				return
			}
		}
		switch {
		case said.user == "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the API server does not know this token: show a new one", http.StatusUnauthorized)
		case !said.allowed:
			http.Error(w, said.user+" may not get "+path+": bind it to the ClusterRole kubevirt.io:metrics", http.StatusForbidden)
		default:
			if bounded {
				caller.Proven()
			}
			pages.ServeHTTP(w, r)
		}
	})
}

func (g *gate) remembered(key [sha256.Size]byte) (verdict, bool) {
	for _, list := range []*cache.LRUExpireCache{g.allowed, g.refused} {
		if found, ok := list.Get(key); ok {
			said, ok := found.(verdict)
			return said, ok
		}
	}
	return verdict{}, false
}

// mayAsk reports whether the API server may be asked about a token from a host. Recently allowed tokens are few, and
// their verdicts remembered.
func (g *gate) mayAsk(key [sha256.Size]byte, from netip.Addr) bool {
	if _, known := g.known.Get(key); known {
		return true
	}
	return g.limit(from).Allow() && g.all.Allow()
}

// limit returns the limiter of a host, which is dropped when it is full again.
func (g *gate) limit(of netip.Addr) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, _ := g.hosts.Get(of)
	limiter, ok := found.(*rate.Limiter)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(hostEvery), hostBurst)
	}
	g.hosts.Add(of, limiter, hostBurst*hostEvery)
	return limiter
}

// Requests with the same token share one review, which does not end with any of them.
func (g *gate) ask(ctx context.Context, key [sha256.Size]byte, token string) (verdict, error) {
	answer, err, _ := g.asking.Do(string(key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		said, err := g.review(ctx, token)
		switch {
		case err != nil:
			return verdict{}, err
		case said.allowed:
			g.known.Add(key, nil, knownFor)
			g.allowed.Add(key, said, allowedFor)
		default:
			g.known.Remove(key)
			g.refused.Add(key, said, refusedFor)
		}
		return said, nil
	})
	if err != nil {
		return verdict{}, err
	}
	said, _ := answer.(verdict)
	return said, nil
}

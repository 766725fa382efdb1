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
)

// path is what is served, and what a token's holder must have the right to get.
const path = "/metrics"

// How long the API server's word counts, and how many words are remembered. A right that is taken away ends within
// allowedFor.
const (
	allowedFor, maxAllowed = time.Minute, 64
	refusedFor, maxRefused = 10 * time.Second, 1024
	// knownFor is how long a token that was allowed is asked about out of turn.
	knownFor = time.Hour
)

// How often the API server is asked about tokens that were never allowed: for one host, and for all.
const (
	hostEvery, hostBurst = 2 * time.Second, 4
	allEvery, allBurst   = 50 * time.Millisecond, 20
	// maxHosts is how many hosts are remembered.
	maxHosts = 1024
	// complainEvery is how often the log says that the API server does not answer.
	complainEvery = time.Minute
)

// verdict is what the API server says of a token.
type verdict struct {
	// user is its holder, empty if there is none.
	user string
	// allowed says that its holder may read metrics.
	allowed bool
}

// gate lets those through who may read metrics. It fails closed: without the API server's word nobody passes.
type gate struct {
	review func(ctx context.Context, token string) (verdict, error)
	log    logr.Logger

	// allowed and refused are verdicts, and known the tokens that were allowed lately, each by the token's hash. What
	// strangers send fills no other list than refused.
	allowed, refused, known *cache.LRUExpireCache
	asking                  singleflight.Group

	// mu is held while a host's limiter is found or made.
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

// guard answers with pages whoever may read them.
func (g *gate) guard(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := bearer(r)
		if token == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "metrics are for those who show a token: send one in the header Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		key := sha256.Sum256([]byte(token))
		said, found := g.remembered(key)
		if !found {
			if !g.mayAsk(key, hostOf(r.Context())) {
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
			if caller, ok := callerOf(r.Context()); ok {
				caller.Proven()
			}
			pages.ServeHTTP(w, r)
		}
	})
}

// bearer is the token of a request, empty for none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// remembered is what the API server has said of a token lately.
func (g *gate) remembered(key [sha256.Size]byte) (verdict, bool) {
	for _, list := range []*cache.LRUExpireCache{g.allowed, g.refused} {
		if found, ok := list.Get(key); ok {
			said, ok := found.(verdict)
			return said, ok
		}
	}
	return verdict{}, false
}

// mayAsk reports whether the API server may be asked about a token that a host shows. Tokens that were allowed lately wait
// for nobody: they are few, and what is said of each is remembered.
func (g *gate) mayAsk(key [sha256.Size]byte, from netip.Addr) bool {
	if _, known := g.known.Get(key); known {
		return true
	}
	return g.limit(from).Allow() && g.all.Allow()
}

// limit is the limiter of a host. It is forgotten when it is full again.
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

// hostOf is where a request comes from.
func hostOf(ctx context.Context) netip.Addr {
	if caller, ok := callerOf(ctx); ok {
		return caller.Host()
	}
	return netip.Addr{}
}

// ask has the API server say what a token is worth. Requests with the same token share one answer, and what one of them
// does does not break the others' off.
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

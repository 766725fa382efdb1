// Package processmetrics has the metrics of a component's own process: its requests to the API server, and the queues of
// its loops, under KubeVirt's names.
//
// It owns how a request becomes labels. It must not know the component, and must not change a request.
package processmetrics

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"

	"drydock.dev/drydock/internal/metrictable"
)

// CountRequests makes the clients of a configuration count their requests, and all clients of this process report their
// latencies. It must be called once, before the first client is made.
func CountRequests(config *rest.Config, registry prometheus.Registerer) error {
	r := newRequests()
	for _, c := range []prometheus.Collector{r.total, r.latency.histogram, r.limited.histogram} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of requests: %w", err)
		}
	}
	// Another package has called Register, which does nothing a second time.
	clientmetrics.RequestLatency, clientmetrics.RateLimiterLatency = r.latency, r.limited
	r.count(config)
	return nil
}

type requests struct {
	total            *prometheus.CounterVec
	latency, limited *latencies
}

func newRequests() *requests {
	total := metrictable.Get("kubevirt_rest_client_requests_total")
	return &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: total.Name, Help: total.Help}, total.Labels),
		latency: newLatencies("kubevirt_rest_client_request_latency_seconds",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}),
		limited: newLatencies("kubevirt_rest_client_rate_limiter_duration_seconds", prometheus.ExponentialBuckets(0.001, 2, 10)),
	}
}

func (r *requests) count(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, r.total} })
}

type counting struct {
	http.RoundTripper
	total *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(request)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	resource, verb := operation(request.Method, request.URL)
	c.total.WithLabelValues(code, request.Method, request.URL.Host, resource, verb).Inc()
	return response, err
}

// WrappedRoundTripper lets client-go find the transport.
func (c counting) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

const none = "none"

// operation returns the resource and KubeVirt's word for the verb.
func operation(method string, u *url.URL) (resource, verb string) {
	path, named := resourcePath(u.Path)
	if path == "" {
		return none, none
	}
	switch method {
	case http.MethodGet:
		switch {
		case u.Query().Has("watch"):
			return path, "WATCH"
		case named:
			return path, "GET"
		}
		return path, "LIST"
	case http.MethodPut:
		return path, "UPDATE"
	case http.MethodPost:
		return path, "CREATE"
	}
	return path, method
}

// resourcePath returns the resource of a path of the API, "" for another path, and whether an object is named.
func resourcePath(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "", false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0], len(parts) > 1
}

// latencies is a histogram by verb and URL, whose names are placeholders. Those of more than maxURLs have the same label.
type latencies struct {
	histogram *prometheus.HistogramVec

	mu   sync.Mutex
	urls map[string]bool
}

const maxURLs = 256

func newLatencies(name string, buckets []float64) *latencies {
	m := metrictable.Get(name)
	return &latencies{
		histogram: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets}, m.Labels),
		urls:      map[string]bool{},
	}
}

// Observe implements client-go's LatencyMetric.
func (l *latencies) Observe(_ context.Context, method string, u url.URL, took time.Duration) {
	_, verb := operation(method, &u)
	text := u.String()
	l.mu.Lock()
	if !l.urls[text] && len(l.urls) == maxURLs {
		text = "<other>"
	} else {
		l.urls[text] = true
	}
	l.mu.Unlock()
	l.histogram.WithLabelValues(verb, text).Observe(took.Seconds())
}

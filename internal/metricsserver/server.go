// Package metricsserver serves a component's metrics to Prometheus, over TLS and for a token that the API server accepts,
// and its health to the kubelet, over plain HTTP. It owns who is admitted, and the limits on strangers: every pod may
// reach these ports. It must not know the metrics or the component.
package metricsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"drydock.dev/drydock/internal/greeting"
	"drydock.dev/drydock/internal/processmetrics"
)

// None is the address at which nothing is served.
const None = "0"

const (
	// room bounds a port's connections of strangers, and separately those of hosts that have sent a valid token.
	room = 64
	// idleTimeout is between two scrapes.
	idleTimeout = 2 * time.Minute
	// The caller reads the response in answerTimeout.
	answerTimeout = time.Minute
	// maxScrapes bounds the concurrent responses: enough for two Prometheuses and a person.
	maxScrapes = 4
	// endTimeout bounds the responses in progress when the process ends.
	endTimeout = 2 * time.Second
)

// Options configure a component's servers.
type Options struct {
	// Metrics and Health are addresses, None for no server.
	Metrics, Health string
	// Certificates is the folder with tls.crt and tls.key, which may be empty at first.
	Certificates string
	// Restrict restricts TLS by settings that may change.
	Restrict func(*tls.Config)
	// Uncompressed is for a component of which each node has one: compression would cost CPU time of all nodes.
	Uncompressed bool
	// Ready is for /readyz.
	Ready healthz.Checker
}

// Flags registers flags, with this port for metrics.
func (o *Options) Flags(flags *pflag.FlagSet, port int) {
	flags.StringVar(&o.Metrics, "metrics-addr", fmt.Sprintf(":%d", port), "address of /metrics, by https and for holders of a token that may get it")
	flags.StringVar(&o.Health, "health-addr", ":8080", "address of /healthz and /readyz, by plain http")
	flags.StringVar(&o.Certificates, "metrics-certificates", "/etc/virt/metrics-certificates", "folder with tls.crt and tls.key, which metrics are served with")
}

// Add makes a manager serve metrics and health from its start, whether it leads or not.
func Add(mgr manager.Manager, o Options) error {
	log := mgr.GetLogger().WithName("metrics")
	if o.Health != None {
		if err := add(mgr, "health", o.Health, healthServer(o.Ready, log), nil); err != nil {
			return err
		}
	}
	if o.Metrics == None {
		return nil
	}
	reviews, err := newReviews(mgr.GetConfig())
	if err != nil {
		return err
	}
	return add(mgr, "metrics", o.Metrics, metricsServer(pagesOf(metrics.Registry, o.Uncompressed), newGate(reviews.ask, log), log), secured(&files{folder: o.Certificates}, o.Restrict))
}

func pagesOf(registry metrics.RegistererGatherer, uncompressed bool) http.Handler {
	return promhttp.HandlerFor(processmetrics.Queues(registry), promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes,
		DisableCompression: uncompressed,
	})
}

// add makes the manager run a server, which it starts before it waits for anything else.
func add(mgr manager.Manager, name, address string, server *http.Server, config *tls.Config) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s for %s: %w", address, name, err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	if err := mgr.Add(&manager.Server{Name: name, Server: server, Listener: listener, ShutdownTimeout: new(endTimeout)}); err != nil {
		return errors.Join(fmt.Errorf("adding the server of %s: %w", name, err), listener.Close())
	}
	return nil
}

// readinessTimeout is how long a scrape waits for a checker.
const readinessTimeout = 200 * time.Millisecond

// Readiness returns a function that reports whether a checker, which may wait, succeeds at once.
func Readiness(check healthz.Checker) func() bool {
	return func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), readinessTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
		return err == nil && check(request) == nil
	}
}

// healthServer returns the server for the kubelet. Errors of checks are only logged.
func healthServer(ready healthz.Checker, log logr.Logger) *http.Server {
	mux := http.NewServeMux()
	for path, check := range map[string]healthz.Checker{"/healthz": healthz.Ping, "/readyz": ready} {
		mux.Handle(path, http.StripPrefix(path, &healthz.Handler{Checks: map[string]healthz.Checker{"ok": check}}))
	}
	return bounded(&http.Server{Handler: mux}, log)
}

func metricsServer(pages http.Handler, g *gate, log logr.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+path, g.guard(pages))
	return bounded(&http.Server{Handler: mux, WriteTimeout: answerTimeout}, log)
}

// secured returns the TLS configuration for metrics, without HTTP/2: a connection has one request at a time.
func secured(from *files, restrict func(*tls.Config)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, err := from.current()
			if err != nil {
				return nil, err
			}
			config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"http/1.1"}}
			if restrict != nil {
				restrict(config)
			}
			return config, nil
		},
	}
}

func bounded(server *http.Server, log logr.Logger) *http.Server {
	(&greeting.Rooms{Size: room}).Bound(server)
	server.IdleTimeout = idleTimeout
	// Aborted handshakes must not fill the log.
	server.ErrorLog = slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelDebug)
	return server
}

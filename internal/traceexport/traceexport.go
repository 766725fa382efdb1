// Package traceexport sends spans to an OpenTelemetry collector by OTLP over gRPC, if the environment names one.
//
// It owns the queue and the connection. Callers never wait: traces that the collector does not take in time are lost, and the
// log says so once. The package must not choose the spans (rules/vmi/starttrace does).
package traceexport

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"

	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

const (
	// queued bounds the waiting traces, of about 4 KiB each. A node starts fewer guests while a collector is busy.
	queued = 64
	// sendTimeout bounds one attempt with its repetitions, whatever the environment and the collector want.
	sendTimeout = 30 * time.Second
	stopTimeout = time.Second
	// maxReason bounds a collector's message in the log, in bytes.
	maxReason = 512
)

// Environment looks up a variable as os.LookupEnv does.
type Environment func(name string) (string, bool)

func (e Environment) get(name string) string {
	value, _ := e(name)
	return strings.TrimSpace(value)
}

// endpoint returns the collector's address, "" for none.
func (e Environment) endpoint() (string, error) {
	endpoint := e.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint == "" {
		endpoint = e.get("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	if endpoint == "" || strings.EqualFold(e.get("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	if exporter := e.get("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return "", nil
	}
	protocol := e.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = e.get("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "grpc" {
		return "", fmt.Errorf("the protocol %q is not spoken, only grpc", protocol)
	}
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		// The address may have a password.
		return "", errors.New("the collector's address must be a URL like http://collector.monitoring:4317")
	}
	return endpoint, nil
}

// Exporter sends traces. A nil Exporter has no Sender, and nothing to run.
type Exporter struct {
	client otlptrace.Client
	sender sender
	queue  chan []starttrace.Span
	lost   atomic.Uint64
	log    logr.Logger
}

// New returns nil if the environment names no collector, or an unusable one, which it logs. The client itself reads the
// other variables OTEL_EXPORTER_OTLP_….
func New(component string, environment Environment, log logr.Logger) *Exporter {
	endpoint, err := environment.endpoint()
	if err != nil {
		log.Error(err, "starts of VMs are not traced")
		return nil
	}
	if endpoint == "" {
		return nil
	}
	otel.SetLogger(logr.New(withoutValues{log.GetSink()}))
	log.Info("starts of VMs are traced")
	return newExporter(component, otlptracegrpc.NewClient(), log)
}

func newExporter(component string, client otlptrace.Client, log logr.Logger) *Exporter {
	return &Exporter{client: client, sender: newSender(component, log), queue: make(chan []starttrace.Span, queued), log: log}
}

// withoutValues logs the client's complaints about the environment without its contents: headers have tokens (decision 591).
type withoutValues struct{ logr.LogSink }

func (w withoutValues) Info(level int, message string, _ ...any) { w.LogSink.Info(level, message) }

func (w withoutValues) Error(err error, message string, _ ...any) { w.LogSink.Error(err, message) }

// Sender returns Send, or nil if nothing is sent.
func (e *Exporter) Sender() func([]starttrace.Span) {
	if e == nil {
		return nil
	}
	return e.Send
}

// Send queues spans of one trace, and drops them if the queue is full.
func (e *Exporter) Send(spans []starttrace.Span) {
	select {
	case e.queue <- spans:
	default:
		e.lost.Add(1)
	}
}

// Run sends the queued traces until ctx ends. It connects with the first of them.
func (e *Exporter) Run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	if err := e.client.Start(ctx); err != nil {
		// The component works without a collector.
		e.log.Error(err, "starts of VMs are not traced")
		return nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = e.client.Stop(ctx) // unsent traces are lost
	}()
	silent := false
	for {
		traces, ok := e.next(ctx)
		if !ok {
			return nil
		}
		err := e.upload(ctx, traces)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			e.lost.Add(uint64(len(traces)))
			if !silent {
				e.log.Info("the collector does not take the traces of VMs' starts; this is logged once", "reason", bounded(err.Error()))
			}
			silent = true
		case silent:
			e.log.Info("the collector takes traces again", "lost", e.lost.Swap(0))
			silent = false
		}
	}
}

// next waits for a trace, and returns it with all others that wait.
func (e *Exporter) next(ctx context.Context) ([][]starttrace.Span, bool) {
	var traces [][]starttrace.Span
	select {
	case <-ctx.Done():
		return nil, false
	case first := <-e.queue:
		traces = append(traces, first)
	}
	for {
		select {
		case another := <-e.queue:
			traces = append(traces, another)
		default:
			return traces, true
		}
	}
}

func (e *Exporter) upload(ctx context.Context, traces [][]starttrace.Span) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return e.client.UploadTraces(ctx, e.sender.encode(traces))
}

func bounded(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

package traceexport

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

const uid = "5d307ca9-b3ef-428c-8861-06e72d69f223"

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func trace() []starttrace.Span {
	return starttrace.Spans(&starttrace.Facts{
		Namespace: "shop", Name: "web", UID: uid, Node: "node1", Accelerator: "tcg",
		Created: noon, PodCreated: noon, Scheduled: noon, Shown: noon.Add(100 * time.Millisecond),
		Network: starttrace.Interval{Begin: noon.Add(time.Second), End: noon.Add(2 * time.Second)},
		Ended:   noon.Add(5 * time.Second), Reason: "Crashed",
	})
}

// collector is a real receiver of OTLP.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	requests chan *collectorv1.ExportTraceServiceRequest
	headers  chan metadata.MD
	// refusal is the answer; nil for none.
	refusal error
}

func (c *collector) Export(ctx context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	if c.refusal != nil {
		return nil, c.refusal
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	c.headers <- headers
	c.requests <- r
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) serve(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
	})
	return "http://" + listener.Addr().String()
}

// logged has the lines of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{})
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func run(t *testing.T, e *Exporter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTracesReachACollector(t *testing.T) {
	c := &collector{requests: make(chan *collectorv1.ExportTraceServiceRequest, 1), headers: make(chan metadata.MD, 1)}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.serve(t))
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east")
	log := &logged{}
	e := New("virt-handler", os.LookupEnv, log.logger())
	run(t, e)
	e.Sender()(trace())
	request, headers := <-c.requests, <-c.headers
	if got := headers.Get("authorization"); len(got) != 1 || got[0] != "Bearer secret" {
		t.Errorf("the collector got the token %q", got)
	}
	if len(request.ResourceSpans) != 1 || len(request.ResourceSpans[0].ScopeSpans) != 1 {
		t.Fatalf("it got %v", request)
	}
	of := map[string]string{}
	for _, a := range request.ResourceSpans[0].Resource.Attributes {
		of[a.Key] = a.Value.GetStringValue()
	}
	if of["service.name"] != "virt-handler" || of["k8s.cluster.name"] != "east" || of["service.version"] == "" {
		t.Errorf("the resource is %v", of)
	}
	isTrace(t, request.ResourceSpans[0].ScopeSpans[0].Spans)
	if strings.Contains(log.text(), "secret") {
		t.Errorf("the log has the token:\n%s", log.text())
	}
}

// isTrace checks that the spans are those of trace.
func isTrace(t *testing.T, spans []*tracev1.Span) {
	t.Helper()
	var got []string
	for _, s := range spans {
		line := fmt.Sprintf("%s %.1f-%.1f", s.Name, float64(int64(s.StartTimeUnixNano)-noon.UnixNano())/1e9, float64(int64(s.EndTimeUnixNano)-noon.UnixNano())/1e9)
		if s.Status != nil {
			line += fmt.Sprintf(" %v %s", s.Status.Code == tracev1.Status_STATUS_CODE_ERROR, s.Status.Message)
		}
		got = append(got, line)
		if hex.EncodeToString(s.TraceId) != strings.ReplaceAll(uid, "-", "") {
			t.Errorf("%s is in trace %x", s.Name, s.TraceId)
		}
		if root := s == spans[0]; root != (len(s.ParentSpanId) == 0) || !root && string(s.ParentSpanId) != string(spans[0].SpanId) {
			t.Errorf("the parent of %s is %x", s.Name, s.ParentSpanId)
		}
	}
	if diff := cmp.Diff([]string{"VM start 0.0-5.0 true Crashed", "pod 0.0-0.0", "bind 0.0-0.1", "network 1.0-2.0"}, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestWhenNothingIsTraced(t *testing.T) {
	const address = "http://collector.monitoring:4317"
	for name, c := range map[string]struct {
		environment map[string]string
		says        string
	}{
		"no collector":         {nil, ""},
		"an empty address":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""},
		"it is switched off":   {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_SDK_DISABLED": "true"}, ""},
		"no exporter":          {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_TRACES_EXPORTER": "none"}, ""},
		"a protocol over HTTP": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, `only grpc`},
		"an address without a scheme": {
			map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "user:password@collector:4317"}, "must be a URL",
		},
	} {
		log := &logged{}
		e := New("virt-handler", func(name string) (string, bool) {
			value, ok := c.environment[name]
			return value, ok
		}, log.logger())
		if e != nil || e.Sender() != nil {
			t.Errorf("%s: there is an exporter", name)
		}
		if err := e.Run(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if said := log.text(); !strings.Contains(said, c.says) || (said == "") != (c.says == "") || strings.Contains(said, "password") {
			t.Errorf("%s: the log says %q", name, said)
		}
	}
}

// A token with a typing error must not get into the log.
func TestHeadersAreNotLogged(t *testing.T) {
	log := &logged{}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Bearer secret")
	if New("virt-handler", os.LookupEnv, log.logger()) == nil {
		t.Fatal("there is no exporter")
	}
	otel.SetLogger(logr.Discard()) // the test's log ends with it
	if said := log.text(); !strings.Contains(said, "parse headers") || strings.Contains(said, "secret") {
		t.Errorf("the log says %q", said)
	}
}

// client fails as often as it is told to.
type client struct {
	results chan error
	sent    chan int
}

func (*client) Start(context.Context) error { return nil }
func (*client) Stop(context.Context) error  { return nil }

func (c *client) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the attempt is not bounded")
	}
	c.sent <- len(spans[0].ScopeSpans[0].Spans)
	return <-c.results
}

func TestADeadCollectorIsLoggedOnceAndDelaysNobody(t *testing.T) {
	log := &logged{}
	c := &client{results: make(chan error), sent: make(chan int)}
	e := newExporter("virt-handler", c, log.logger())
	run(t, e)
	one := []starttrace.Span{{Name: starttrace.Start}}
	dead := errors.New("connection refused" + strings.Repeat("!", 10*maxReason))
	for range 3 {
		e.Send(one)
		if n := <-c.sent; n != 1 {
			t.Errorf("%d spans were sent together", n)
		}
		c.results <- dead
	}
	e.Send(one)
	<-c.sent
	// An attempt is in progress: the queue takes as many as fit, and no caller waits.
	for range queued + 5 {
		e.Send(one)
	}
	c.results <- nil
	if n := <-c.sent; n != queued {
		t.Errorf("%d spans were sent together, want %d", n, queued)
	}
	c.results <- nil
	e.Send(one)
	<-c.sent // the results before were handled
	said := log.text()
	if strings.Count(said, "connection refused") != 1 || len(said) > 2*maxReason {
		t.Errorf("the log has %d bytes: %s", len(said), said)
	}
	if !strings.Contains(said, `"lost"=8`) {
		t.Errorf("the log does not say that three traces were not taken and five did not fit: %s", said)
	}
	close(c.results)
}

func TestARefusalIsLogged(t *testing.T) {
	c := &collector{refusal: status.Error(codes.PermissionDenied, "not for you")}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.serve(t))
	said := make(chan string, 10)
	e := New("virt-api", os.LookupEnv, funcr.New(func(_, line string) { said <- line }, funcr.Options{}))
	run(t, e)
	e.Send(trace())
	if line := <-said; !strings.Contains(line, "starts of VMs are traced") {
		t.Errorf("the log says %s", line)
	}
	if line := <-said; !strings.Contains(line, "not for you") {
		t.Errorf("the log says %s", line)
	}
}

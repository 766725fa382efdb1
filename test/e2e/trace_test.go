//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

// collector keeps the spans that it gets, by trace and name.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans map[string]map[string]*tracev1.Span
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				trace := hex.EncodeToString(s.TraceId)
				if c.spans[trace] == nil {
					c.spans[trace] = map[string]*tracev1.Span{}
				}
				c.spans[trace][s.Name] = s
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) trace(id string) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.spans[id])
}

// newCollector serves at the address at which the pods reach the API server, on the test's machine.
func newCollector(t *testing.T) (c *collector, endpoint string) {
	t.Helper()
	server, err := url.Parse(cluster.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(server.Hostname(), "0"))
	if err != nil {
		t.Fatalf("listening for traces: %v", err)
	}
	c = &collector{spans: map[string]map[string]*tracev1.Span{}}
	serving := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(serving, c)
	var running sync.WaitGroup
	running.Go(func() { _ = serving.Serve(listener) })
	t.Cleanup(func() {
		serving.Stop()
		running.Wait()
	})
	return c, "http://" + listener.Addr().String()
}

// setEnvironment sets a variable of virt-handler and virt-api as docs/observability.md says; NAME- removes it.
func setEnvironment(t *testing.T, variable string) {
	t.Helper()
	workloads := []string{"daemonset/virt-handler", "deployment/virt-api"}
	args := append([]string{"-n", "kubevirt", "set", "env"}, workloads...)
	args = append(args, "-c", "virt-*", variable)
	if out, err := kubectl(context.Background(), args...); err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	for _, workload := range workloads {
		rolledOut(t, workload)
	}
}

// TestTheStartOfAVMIsTraced checks that the spans of virt-api and of a node's virt-handler are one trace, with the UID that
// kube-apiserver gives to the VMI, and that times by different clocks and processes are in order. It runs alone, because it
// restarts virt-handler.
func TestTheStartOfAVMIsTraced(t *testing.T) {
	ns := newNamespace(t)
	c, endpoint := newCollector(t)
	t.Cleanup(func() { setEnvironment(t, "OTEL_EXPORTER_OTLP_ENDPOINT-") })
	setEnvironment(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)

	bootVM(t, newVM(newVMI(ns, "traced"), v1.RunStrategyAlways))
	vmi := awaitRunning(t, ns, "traced")
	// The stages follow each other, but network and disks are made at the same time. Admission ends soon after the VMI's
	// creation, which is cut to whole seconds.
	order := []string{
		starttrace.Pod, starttrace.Bind, starttrace.Sandbox, starttrace.Launcher,
		starttrace.Network, starttrace.Disks, starttrace.QEMU, starttrace.FirstLine,
	}
	var spans map[string]*tracev1.Span
	eventually(t, "the trace of the VM's start", func(context.Context) error {
		spans = c.trace(strings.ReplaceAll(string(vmi.UID), "-", ""))
		for _, name := range append([]string{starttrace.Start, starttrace.Admission}, order...) {
			if spans[name] == nil {
				return fmt.Errorf("there is no span %q among %q", name, slices.Sorted(maps.Keys(spans)))
			}
		}
		return nil
	})
	hasRoot(t, spans, vmi)
	if len(spans) != len(order)+2 {
		t.Errorf("%d spans: %v", len(spans), spans)
	}
	following := slices.DeleteFunc(order, func(name string) bool { return name == starttrace.Network })
	if !slices.IsSortedFunc(following, func(a, b string) int { return cmp.Compare(spans[a].EndTimeUnixNano, spans[b].EndTimeUnixNano) }) ||
		spans[starttrace.Network].StartTimeUnixNano < spans[starttrace.Launcher].EndTimeUnixNano {
		t.Errorf("the stages are out of order: %v", spans)
	}
	if q := spans[starttrace.QEMU].StartTimeUnixNano; q < spans[starttrace.Network].EndTimeUnixNano || q < spans[starttrace.Disks].EndTimeUnixNano {
		t.Errorf("QEMU was started before its network and disks were there: %v", spans)
	}
}

// hasRoot checks that all spans are inside of the root, and that the root describes the VMI and complains of nothing.
func hasRoot(t *testing.T, spans map[string]*tracev1.Span, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	root := spans[starttrace.Start]
	if len(root.ParentSpanId) > 0 || root.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("the root is %v", root)
	}
	for _, a := range root.Attributes {
		if a.Key == starttrace.NodeKey && a.Value.GetStringValue() != vmi.Status.NodeName || a.Key == starttrace.ClockSkewKey || a.Key == starttrace.IncompleteKey {
			t.Errorf("the root has %v", a)
		}
	}
	for name, s := range spans {
		if s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano < root.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano {
			t.Errorf("%s is not inside of the root: %v, %v", name, s, root)
		}
	}
}

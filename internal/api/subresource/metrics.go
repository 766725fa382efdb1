package subresource

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/metrictable"
)

// maxConnected bounds the VMIs whose last connection is known: tenants make any number of them.
const maxConnected = 4096

// streams counts the open streams by kind and VMI, and knows when one was last opened. A VMI without any has no series.
type streams struct {
	now func() time.Time

	mu     sync.Mutex
	open   map[nodeapi.Verb]map[types.NamespacedName]int
	opened map[types.NamespacedName]time.Time
}

var (
	ofStreams = map[nodeapi.Verb]metrictable.Series{
		nodeapi.Console:     metrictable.Of("kubevirt_console_active_connections"),
		nodeapi.VNC:         metrictable.Of("kubevirt_vnc_active_connections"),
		nodeapi.PortForward: metrictable.Of("kubevirt_portforward_active_tunnels"),
	}
	lastOpened = metrictable.Of("kubevirt_vmi_last_api_connection_timestamp_seconds")
)

func newStreams() *streams {
	s := &streams{now: time.Now, open: map[nodeapi.Verb]map[types.NamespacedName]int{}, opened: map[types.NamespacedName]time.Time{}}
	for verb := range ofStreams {
		s.open[verb] = map[types.NamespacedName]int{}
	}
	return s
}

// begin counts a stream until end is called. Other verbs are not counted.
func (s *streams) begin(verb nodeapi.Verb, vmi types.NamespacedName) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open[verb]
	if open == nil {
		return func() {}
	}
	open[vmi]++
	s.opened[vmi] = s.now()
	if len(s.opened) > maxConnected {
		s.forget()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if open[vmi]--; open[vmi] == 0 {
			delete(open, vmi)
		}
	}
}

// forget drops the older half of the last connections.
func (s *streams) forget() {
	times := make([]time.Time, 0, len(s.opened))
	for _, at := range s.opened {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	middle := times[len(times)/2]
	for vmi, at := range s.opened {
		if len(s.opened) > maxConnected/2 && !at.After(middle) {
			delete(s.opened, vmi)
		}
	}
}

// Describe implements prometheus.Collector.
func (s *streams) Describe(out chan<- *prometheus.Desc) {
	for _, series := range ofStreams {
		out <- series.Desc
	}
	out <- lastOpened.Desc
}

// Collect implements prometheus.Collector.
func (s *streams) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for verb, open := range s.open {
		for vmi, n := range open {
			out <- ofStreams[verb].At(float64(n), vmi.Namespace, vmi.Name)
		}
	}
	for vmi, at := range s.opened {
		out <- lastOpened.At(float64(at.Unix()), vmi.Namespace, vmi.Name)
	}
}

// readiness is whether virt-api is ready.
type readiness struct{ ready func() bool }

var readyStatus = metrictable.Of("kubevirt_virt_api_ready_status")

// Describe implements prometheus.Collector.
func (r readiness) Describe(out chan<- *prometheus.Desc) { out <- readyStatus.Desc }

// Collect implements prometheus.Collector.
func (r readiness) Collect(out chan<- prometheus.Metric) {
	value := 0.0
	if r.ready() {
		value = 1
	}
	out <- readyStatus.At(value)
}

// Collectors returns virt-api's metrics. ready, which must not block, reports whether it is ready.
func (s *Server) Collectors(ready func() bool) []prometheus.Collector {
	return []prometheus.Collector{s.streams, readiness{ready}}
}

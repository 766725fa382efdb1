package subresource

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// streams counts the open streams of one kind by VMI. A VMI without any has no series.
type streams struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	open map[types.NamespacedName]int
}

// newStreams returns the counters of all kinds, with KubeVirt's names.
func newStreams() map[nodeapi.Verb]*streams {
	return map[nodeapi.Verb]*streams{
		nodeapi.Console: countStreams("kubevirt_console_active_connections",
			"Amount of active Console connections, broken down by namespace and vmi name."),
		nodeapi.VNC: countStreams("kubevirt_vnc_active_connections",
			"Amount of active VNC connections, broken down by namespace and vmi name."),
		nodeapi.PortForward: countStreams("kubevirt_portforward_active_tunnels",
			"Amount of active portforward tunnels, broken down by namespace and vmi name."),
	}
}

func countStreams(name, help string) *streams {
	return &streams{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"namespace", "vmi"}),
		open:  map[types.NamespacedName]int{},
	}
}

func (s *streams) add(vmi types.NamespacedName, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[vmi] += n
	if s.open[vmi] == 0 {
		delete(s.open, vmi)
		s.gauge.DeleteLabelValues(vmi.Namespace, vmi.Name)
		return
	}
	s.gauge.WithLabelValues(vmi.Namespace, vmi.Name).Set(float64(s.open[vmi]))
}

// Collectors returns the server's metrics.
func (s *Server) Collectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, counted := range s.streams {
		all = append(all, counted.gauge)
	}
	return all
}

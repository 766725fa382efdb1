package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/metrictable"
)

// Process has the metrics of virt-handler and its node. Each scrape calls its functions, which must not block.
type Process struct {
	Node string
	// Ready reports whether guests can come to the node.
	Ready func() bool
	// Deprecated returns the machine types that the node's QEMU will drop.
	Deprecated func() []string
	// Rounds returns the number of rounds of each VMI's drivers.
	Rounds func() map[types.NamespacedName]uint64
}

var (
	info              = metrictable.Of("kubevirt_info")
	readyStatus       = metrictable.Of("kubevirt_virt_handler_ready_status")
	deprecatedMachine = metrictable.Of("kubevirt_node_deprecated_machine_types")
	nodeReady         = metrictable.Of("drydock_node_ready_status")
	syncs             = metrictable.Of("kubevirt_vmi_sync_total")
)

// Describe sends the metrics' descriptions.
func (p *Process) Describe(out chan<- *prometheus.Desc) {
	for _, s := range []metrictable.Series{info, readyStatus, deprecatedMachine, syncs, nodeReady} {
		out <- s.Desc
	}
}

// Collect sends the metrics.
func (p *Process) Collect(out chan<- prometheus.Metric) {
	out <- info.At(1, runtime.Version(), version.Version)
	value := 0.0
	if p.Ready() {
		value = 1
	}
	out <- readyStatus.At(value)
	out <- nodeReady.At(value, p.Node)
	for _, machine := range p.Deprecated() {
		out <- deprecatedMachine.At(1, machine, p.Node)
	}
	for vmi, n := range p.Rounds() {
		out <- syncs.At(float64(n), vmi.Namespace, vmi.Name)
	}
}

// Package metrics tells Prometheus what the guests of a node use, under the
// names that KubeVirt's users have on their dashboards.
//
// It owns names, labels and units. It asks at each scrape and keeps nothing: a
// guest that nobody measures costs nothing. Where the figures come from is the
// Source's business.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Usage is what one guest uses. A part that could not be found out is left
// empty.
type Usage struct {
	Namespace, Name string
	// ResidentBytes is the memory of QEMU's process, guest memory included.
	ResidentBytes float64
	// GuestBytes is the guest's memory.
	GuestBytes float64
	CPUSeconds float64
	Drives     []Drive
	Interfaces []Interface
}

// Drive is what went over one of the guest's disks since it was started.
type Drive struct {
	Name                  string
	Reads, Writes         float64
	ReadBytes, WriteBytes float64
}

// Interface is what went over one of the guest's interfaces, seen by the guest.
type Interface struct {
	Name                         string
	ReceivedBytes, SentBytes     float64
	ReceivedPackets, SentPackets float64
}

// Source measures all guests of the node, within the time that ctx allows.
type Source func(ctx context.Context) []Usage

// patience is how long a scrape waits for guests: a QEMU that is stuck must not
// take the others' figures with it.
const patience = 5 * time.Second

// Collector is a prometheus.Collector.
type Collector struct {
	node   string
	source Source
}

// NewCollector makes the collector of a node.
func NewCollector(node string, source Source) *Collector {
	return &Collector{node: node, source: source}
}

func perGuest(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"node", "namespace", "name"}, labels...), nil)
}

var (
	resident   = perGuest("kubevirt_vmi_memory_resident_bytes", "Resident set size of the process that runs the guest.")
	domain     = perGuest("kubevirt_vmi_memory_domain_bytes", "Memory that the guest has.")
	cpu        = perGuest("kubevirt_vmi_cpu_usage_seconds_total", "CPU time spent on the guest, emulation included.")
	reads      = perGuest("kubevirt_vmi_storage_iops_read_total", "Read requests of a disk.", "drive")
	writes     = perGuest("kubevirt_vmi_storage_iops_write_total", "Write requests of a disk.", "drive")
	readBytes  = perGuest("kubevirt_vmi_storage_read_traffic_bytes_total", "Bytes read from a disk.", "drive")
	writeBytes = perGuest("kubevirt_vmi_storage_write_traffic_bytes_total", "Bytes written to a disk.", "drive")
	received   = perGuest("kubevirt_vmi_network_receive_bytes_total", "Bytes that the guest received.", "interface")
	sent       = perGuest("kubevirt_vmi_network_transmit_bytes_total", "Bytes that the guest sent.", "interface")
	receivedN  = perGuest("kubevirt_vmi_network_receive_packets_total", "Packets that the guest received.", "interface")
	sentN      = perGuest("kubevirt_vmi_network_transmit_packets_total", "Packets that the guest sent.", "interface")
)

// Describe names the metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		resident, domain, cpu, reads, writes, readBytes, writeBytes, received, sent, receivedN, sentN,
	} {
		out <- desc
	}
}

// Collect measures.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, usage := range c.source(ctx) {
		emit := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			labels = append([]string{c.node, usage.Namespace, usage.Name}, labels...)
			out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
		}
		emit(resident, prometheus.GaugeValue, usage.ResidentBytes)
		emit(domain, prometheus.GaugeValue, usage.GuestBytes)
		emit(cpu, prometheus.CounterValue, usage.CPUSeconds)
		for _, d := range usage.Drives {
			emit(reads, prometheus.CounterValue, d.Reads, d.Name)
			emit(writes, prometheus.CounterValue, d.Writes, d.Name)
			emit(readBytes, prometheus.CounterValue, d.ReadBytes, d.Name)
			emit(writeBytes, prometheus.CounterValue, d.WriteBytes, d.Name)
		}
		for _, i := range usage.Interfaces {
			emit(received, prometheus.CounterValue, i.ReceivedBytes, i.Name)
			emit(sent, prometheus.CounterValue, i.SentBytes, i.Name)
			emit(receivedN, prometheus.CounterValue, i.ReceivedPackets, i.Name)
			emit(sentN, prometheus.CounterValue, i.SentPackets, i.Name)
		}
	}
}

// Package metrics exports the resource usage of a node's guests to Prometheus, under KubeVirt's metric names.
//
// It owns names, labels and units. The Source measures at each scrape: guests cost nothing without scrapes. Only the
// costs of migrations are stored (Migrations).
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Usage is the usage of one guest. An unknown part is zero.
type Usage struct {
	Namespace, Name string
	// ResidentBytes is the memory of QEMU's process, guest memory included.
	ResidentBytes float64
	GuestBytes    float64
	CPUSeconds    float64
	Drives        []Drive
	Interfaces    []Interface
	// Migration is nil while the guest does not migrate away.
	Migration *Migration
}

// Migration is the progress of sending memory.
type Migration struct {
	// In bytes.
	Total, Processed, Remaining float64
	// In bytes per second.
	DirtyRate, TransferRate float64
	// ExpectedDowntime is how long the guest would stand still if the rest was sent now, in seconds.
	ExpectedDowntime float64
}

// Drive is a disk's traffic since the guest's start.
type Drive struct {
	Name                   string
	Reads, Writes, Flushes float64
	ReadBytes, WriteBytes  float64
	// Total times of requests, in seconds.
	ReadSeconds, WriteSeconds, FlushSeconds float64
}

// Interface is an interface's traffic, from the guest's view.
type Interface struct {
	Name                         string
	ReceivedBytes, SentBytes     float64
	ReceivedPackets, SentPackets float64
	ReceiveErrors, SendErrors    float64
	ReceiveDrops, SendDrops      float64
}

// Source measures all guests within ctx's deadline.
type Source func(ctx context.Context) []Usage

// patience limits a scrape: a QEMU that hangs must not lose the others' metrics.
const patience = 5 * time.Second

// Collector implements prometheus.Collector.
type Collector struct {
	node   string
	source Source
}

// NewCollector returns the collector of a node.
func NewCollector(node string, source Source) *Collector {
	return &Collector{node: node, source: source}
}

func perGuest(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"node", "namespace", "name"}, labels...), nil)
}

var (
	resident = perGuest("kubevirt_vmi_memory_resident_bytes", "Resident set size of the process that runs the guest.")
	domain   = perGuest("kubevirt_vmi_memory_domain_bytes", "Memory that the guest has.")
	cpu      = perGuest("kubevirt_vmi_cpu_usage_seconds_total", "CPU time spent on the guest, emulation included.")
)

var (
	ofDrive = []counter[Drive]{
		{perGuest("kubevirt_vmi_storage_iops_read_total", "Read requests of a disk.", "drive"), func(d Drive) float64 { return d.Reads }},
		{perGuest("kubevirt_vmi_storage_iops_write_total", "Write requests of a disk.", "drive"), func(d Drive) float64 { return d.Writes }},
		{perGuest("kubevirt_vmi_storage_flush_requests_total", "Flush requests of a disk.", "drive"), func(d Drive) float64 { return d.Flushes }},
		{perGuest("kubevirt_vmi_storage_read_traffic_bytes_total", "Bytes read from a disk.", "drive"), func(d Drive) float64 { return d.ReadBytes }},
		{perGuest("kubevirt_vmi_storage_write_traffic_bytes_total", "Bytes written to a disk.", "drive"), func(d Drive) float64 { return d.WriteBytes }},
		{perGuest("kubevirt_vmi_storage_read_times_seconds_total", "Time spent on reads of a disk.", "drive"), func(d Drive) float64 { return d.ReadSeconds }},
		{perGuest("kubevirt_vmi_storage_write_times_seconds_total", "Time spent on writes of a disk.", "drive"), func(d Drive) float64 { return d.WriteSeconds }},
		{perGuest("kubevirt_vmi_storage_flush_times_seconds_total", "Time spent on flushes of a disk.", "drive"), func(d Drive) float64 { return d.FlushSeconds }},
	}
	ofInterface = []counter[Interface]{
		{perGuest("kubevirt_vmi_network_receive_bytes_total", "Bytes that the guest received.", "interface"), func(i Interface) float64 { return i.ReceivedBytes }},
		{perGuest("kubevirt_vmi_network_transmit_bytes_total", "Bytes that the guest sent.", "interface"), func(i Interface) float64 { return i.SentBytes }},
		{perGuest("kubevirt_vmi_network_receive_packets_total", "Packets that the guest received.", "interface"), func(i Interface) float64 { return i.ReceivedPackets }},
		{perGuest("kubevirt_vmi_network_transmit_packets_total", "Packets that the guest sent.", "interface"), func(i Interface) float64 { return i.SentPackets }},
		{perGuest("kubevirt_vmi_network_receive_errors_total", "Packets to the guest that failed.", "interface"), func(i Interface) float64 { return i.ReceiveErrors }},
		{perGuest("kubevirt_vmi_network_transmit_errors_total", "Packets from the guest that failed.", "interface"), func(i Interface) float64 { return i.SendErrors }},
		{perGuest("kubevirt_vmi_network_receive_packets_dropped_total", "Packets to the guest that were dropped.", "interface"), func(i Interface) float64 { return i.ReceiveDrops }},
		{perGuest("kubevirt_vmi_network_transmit_packets_dropped_total", "Packets from the guest that were dropped.", "interface"), func(i Interface) float64 { return i.SendDrops }},
	}
)

// dataTotal duplicates a gauge: KubeVirt has two names for the same value.
var dataTotal = perGuest("kubevirt_vmi_migration_data_bytes_total", "Memory that a migration has to send.")

var ofMigration = []counter[Migration]{
	{perGuest("kubevirt_vmi_migration_data_total_bytes", "Memory that a migration has to send; deprecated by KubeVirt, see kubevirt_vmi_migration_data_bytes_total."), func(m Migration) float64 { return m.Total }},
	{perGuest("kubevirt_vmi_migration_data_processed_bytes", "Memory that a migration has sent."), func(m Migration) float64 { return m.Processed }},
	{perGuest("kubevirt_vmi_migration_data_remaining_bytes", "Memory that a migration has still to send."), func(m Migration) float64 { return m.Remaining }},
	{perGuest("kubevirt_vmi_migration_dirty_memory_rate_bytes", "Memory that the guest changes in a second while it is migrated."), func(m Migration) float64 { return m.DirtyRate }},
	{perGuest("kubevirt_vmi_migration_memory_transfer_rate_bytes", "Memory that a migration sends in a second."), func(m Migration) float64 { return m.TransferRate }},
	{perGuest("drydock_vmi_migration_expected_downtime_seconds", "How long the guest would stand still if the rest of its memory was sent now."), func(m Migration) float64 { return m.ExpectedDowntime }},
}

type counter[T any] struct {
	desc *prometheus.Desc
	of   func(T) float64
}

// Describe sends the metrics' descriptions.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{resident, domain, cpu, dataTotal} {
		out <- desc
	}
	for _, c := range ofDrive {
		out <- c.desc
	}
	for _, c := range ofInterface {
		out <- c.desc
	}
	for _, c := range ofMigration {
		out <- c.desc
	}
}

// Collect measures the guests.
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
			for _, c := range ofDrive {
				emit(c.desc, prometheus.CounterValue, c.of(d), d.Name)
			}
		}
		for _, i := range usage.Interfaces {
			for _, c := range ofInterface {
				emit(c.desc, prometheus.CounterValue, c.of(i), i.Name)
			}
		}
		if usage.Migration == nil {
			continue
		}
		emit(dataTotal, prometheus.CounterValue, usage.Migration.Total)
		for _, c := range ofMigration {
			emit(c.desc, prometheus.GaugeValue, c.of(*usage.Migration))
		}
	}
}

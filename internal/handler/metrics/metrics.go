// Package metrics exports the resource usage of a node's guests to Prometheus.
//
// It decides which figures are valid, and maps them to the table of metrics. The Source measures at scrapes: guests cost
// nothing without scrapes. Only the costs of migrations and the panics are stored.
package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/metrictable"
)

// Usage is the usage of one guest.
type Usage struct {
	Namespace, Name string
	Guest           Guest
	VCPUs           []VCPU
	Drives          []Drive
	Interfaces      []Interface
	Filesystems     []Filesystem
	// Migration is nil while the guest does not migrate away.
	Migration *Migration
}

// Guest has a guest's figures by the constants below.
type Guest [guestFigures]Figure

// Indexes of Guest. Memory is in bytes, CPU time in seconds.
const (
	// Resident is the memory of QEMU's process, guest memory included.
	Resident = iota
	Domain   // the guest's memory
	Balloon  // the rest that the balloon leaves
	// Available to CachedFiles are the guest's own figures.
	Available
	Unused
	Usable
	CachedFiles
	// Used is Available less Usable.
	Used
	SwapIn
	SwapOut
	MajorFaults
	MinorFaults
	// CPU is UserCPU and SystemCPU.
	CPU
	UserCPU
	SystemCPU
	// DirtyRate is the memory that the guest changes in a second.
	DirtyRate
	// Affinity is the sum of the node's CPUs that each virtual CPU may use.
	Affinity
	Load1
	Load5
	Load15
	// Queue is Load1 beyond the number of virtual CPUs.
	Queue
	guestFigures
)

// VCPU is a virtual CPU. Times are in seconds.
type VCPU struct {
	ID             int
	Seconds, Delay Figure
}

// Drive is a disk's traffic since the guest's start.
type Drive struct {
	Name    string
	Figures [driveFigures]Figure
}

// Indexes of a Drive's Figures. Times are in seconds.
const (
	Reads = iota
	Writes
	Flushes
	ReadBytes
	WriteBytes
	ReadSeconds
	WriteSeconds
	FlushSeconds
	driveFigures
)

// Interface is an interface's traffic, from the guest's view.
type Interface struct {
	Name    string
	Figures [interfaceFigures]Figure
}

// Indexes of an Interface's Figures.
const (
	ReceivedBytes = iota
	SentBytes
	ReceivedPackets
	SentPackets
	ReceiveErrors
	SendErrors
	ReceiveDrops
	SendDrops
	interfaceFigures
)

// Filesystem is a file system in the guest, in bytes.
type Filesystem struct {
	Disk, MountPoint, Type string
	Capacity, Used         Figure
}

// Migration is the progress of sending memory.
type Migration struct {
	Total, Processed, Remaining float64 // bytes
	DirtyRate, TransferRate     float64 // bytes per second
	ExpectedDowntime            float64 // seconds, if the rest was sent now
}

// Source measures all guests within ctx's deadline.
type Source func(ctx context.Context) []Usage

// patience bounds a scrape: a hanging QEMU must not cost the others' metrics.
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

var (
	ofGuest = [guestFigures]metrictable.Series{
		Resident:    metrictable.Of("kubevirt_vmi_memory_resident_bytes"),
		Domain:      metrictable.Of("kubevirt_vmi_memory_domain_bytes"),
		Balloon:     metrictable.Of("kubevirt_vmi_memory_actual_balloon_bytes"),
		Available:   metrictable.Of("kubevirt_vmi_memory_available_bytes"),
		Unused:      metrictable.Of("kubevirt_vmi_memory_unused_bytes"),
		Usable:      metrictable.Of("kubevirt_vmi_memory_usable_bytes"),
		CachedFiles: metrictable.Of("kubevirt_vmi_memory_cached_bytes"),
		Used:        metrictable.Of("kubevirt_vmi_memory_used_bytes"),
		SwapIn:      metrictable.Of("kubevirt_vmi_memory_swap_in_traffic_bytes"),
		SwapOut:     metrictable.Of("kubevirt_vmi_memory_swap_out_traffic_bytes"),
		MajorFaults: metrictable.Of("kubevirt_vmi_memory_pgmajfault_total"),
		MinorFaults: metrictable.Of("kubevirt_vmi_memory_pgminfault_total"),
		CPU:         metrictable.Of("kubevirt_vmi_cpu_usage_seconds_total"),
		UserCPU:     metrictable.Of("kubevirt_vmi_cpu_user_usage_seconds_total"),
		SystemCPU:   metrictable.Of("kubevirt_vmi_cpu_system_usage_seconds_total"),
		DirtyRate:   metrictable.Of("kubevirt_vmi_dirty_rate_bytes_per_second"),
		Affinity:    metrictable.Of("kubevirt_vmi_node_cpu_affinity"),
		Load1:       metrictable.Of("kubevirt_vmi_guest_load_1m"),
		Load5:       metrictable.Of("kubevirt_vmi_guest_load_5m"),
		Load15:      metrictable.Of("kubevirt_vmi_guest_load_15m"),
		Queue:       metrictable.Of("kubevirt_vmi_guest_vcpu_queue"),
	}
	vcpuSeconds = metrictable.Of("kubevirt_vmi_vcpu_seconds_total")
	vcpuDelay   = metrictable.Of("kubevirt_vmi_vcpu_delay_seconds_total")
	vcpuWait    = metrictable.Of("kubevirt_vmi_vcpu_wait_seconds_total")
	ofDrive     = [driveFigures]metrictable.Series{
		Reads:        metrictable.Of("kubevirt_vmi_storage_iops_read_total"),
		Writes:       metrictable.Of("kubevirt_vmi_storage_iops_write_total"),
		Flushes:      metrictable.Of("kubevirt_vmi_storage_flush_requests_total"),
		ReadBytes:    metrictable.Of("kubevirt_vmi_storage_read_traffic_bytes_total"),
		WriteBytes:   metrictable.Of("kubevirt_vmi_storage_write_traffic_bytes_total"),
		ReadSeconds:  metrictable.Of("kubevirt_vmi_storage_read_times_seconds_total"),
		WriteSeconds: metrictable.Of("kubevirt_vmi_storage_write_times_seconds_total"),
		FlushSeconds: metrictable.Of("kubevirt_vmi_storage_flush_times_seconds_total"),
	}
	ofInterface = [interfaceFigures]metrictable.Series{
		ReceivedBytes:   metrictable.Of("kubevirt_vmi_network_receive_bytes_total"),
		SentBytes:       metrictable.Of("kubevirt_vmi_network_transmit_bytes_total"),
		ReceivedPackets: metrictable.Of("kubevirt_vmi_network_receive_packets_total"),
		SentPackets:     metrictable.Of("kubevirt_vmi_network_transmit_packets_total"),
		ReceiveErrors:   metrictable.Of("kubevirt_vmi_network_receive_errors_total"),
		SendErrors:      metrictable.Of("kubevirt_vmi_network_transmit_errors_total"),
		ReceiveDrops:    metrictable.Of("kubevirt_vmi_network_receive_packets_dropped_total"),
		SendDrops:       metrictable.Of("kubevirt_vmi_network_transmit_packets_dropped_total"),
	}
	// traffic duplicates two of an interface's: KubeVirt deprecates it.
	traffic            = metrictable.Of("kubevirt_vmi_network_traffic_bytes_total")
	filesystemCapacity = metrictable.Of("kubevirt_vmi_filesystem_capacity_bytes")
	filesystemUsed     = metrictable.Of("kubevirt_vmi_filesystem_used_bytes")
)

var ofMigration = []struct {
	series metrictable.Series
	of     func(*Migration) float64
}{
	{metrictable.Of("kubevirt_vmi_migration_data_bytes_total"), func(m *Migration) float64 { return m.Total }},
	{metrictable.Of("kubevirt_vmi_migration_data_total_bytes"), func(m *Migration) float64 { return m.Total }},
	{metrictable.Of("kubevirt_vmi_migration_data_processed_bytes"), func(m *Migration) float64 { return m.Processed }},
	{metrictable.Of("kubevirt_vmi_migration_data_remaining_bytes"), func(m *Migration) float64 { return m.Remaining }},
	{metrictable.Of("kubevirt_vmi_migration_dirty_memory_rate_bytes"), func(m *Migration) float64 { return m.DirtyRate }},
	{metrictable.Of("kubevirt_vmi_migration_memory_transfer_rate_bytes"), func(m *Migration) float64 { return m.TransferRate }},
	{metrictable.Of("drydock_vmi_migration_expected_downtime_seconds"), func(m *Migration) float64 { return m.ExpectedDowntime }},
}

// Describe sends the metrics' descriptions.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, list := range [][]metrictable.Series{
		ofGuest[:], ofDrive[:], ofInterface[:], {vcpuSeconds, vcpuDelay, vcpuWait, traffic, filesystemCapacity, filesystemUsed},
	} {
		for _, s := range list {
			out <- s.Desc
		}
	}
	for _, m := range ofMigration {
		out <- m.series.Desc
	}
}

// Collect measures the guests.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sent := map[types.NamespacedName]bool{}
	for _, usage := range c.source(ctx) {
		// A second guest of a name would invalidate the whole scrape.
		if name := (types.NamespacedName{Namespace: usage.Namespace, Name: usage.Name}); !sent[name] {
			sent[name] = true
			usage.derive()
			c.send(out, &usage)
		}
	}
}

// derive computes figures from others.
func (u *Usage) derive() {
	available, known := u.Guest[Available].Value()
	if usable, also := u.Guest[Usable].Value(); known && also {
		u.Guest[Used] = Known(available - usable)
	}
	if load, known := u.Guest[Load1].Value(); known && len(u.VCPUs) > 0 {
		u.Guest[Queue] = Known(max(0, load-float64(len(u.VCPUs))))
	}
}

// send makes the labels of each part once.
func (c *Collector) send(out chan<- prometheus.Metric, usage *Usage) {
	emit := func(s metrictable.Series, f Figure, labels metrictable.Labels) {
		if value, known := f.Value(); known {
			out <- s.With(value, labels)
		}
	}
	labelsOf := func(s metrictable.Series, more ...string) metrictable.Labels {
		return s.Labels(append([]string{c.node, usage.Namespace, usage.Name}, more...)...)
	}
	ofAll := labelsOf(ofGuest[0])
	for i, f := range usage.Guest {
		emit(ofGuest[i], f, ofAll)
	}
	for _, v := range usage.VCPUs {
		id := strconv.Itoa(v.ID)
		emit(vcpuSeconds, v.Seconds, labelsOf(vcpuSeconds, id, "running"))
		waited := labelsOf(vcpuDelay, id)
		emit(vcpuDelay, v.Delay, waited)
		emit(vcpuWait, v.Delay, waited)
	}
	for i := range usage.Drives {
		labels := labelsOf(ofDrive[0], usage.Drives[i].Name)
		for j, f := range usage.Drives[i].Figures {
			emit(ofDrive[j], f, labels)
		}
	}
	for i := range usage.Interfaces {
		n := &usage.Interfaces[i]
		labels := labelsOf(ofInterface[0], n.Name)
		for j, f := range n.Figures {
			emit(ofInterface[j], f, labels)
		}
		emit(traffic, n.Figures[ReceivedBytes], labelsOf(traffic, n.Name, "rx"))
		emit(traffic, n.Figures[SentBytes], labelsOf(traffic, n.Name, "tx"))
	}
	for _, f := range usage.Filesystems {
		labels := labelsOf(filesystemCapacity, f.Disk, f.MountPoint, f.Type)
		emit(filesystemCapacity, f.Capacity, labels)
		emit(filesystemUsed, f.Used, labels)
	}
	if usage.Migration != nil {
		for _, m := range ofMigration {
			emit(m.series, Known(m.of(usage.Migration)), ofAll)
		}
	}
}

package metrics

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestCollector(t *testing.T) {
	collector := NewCollector("node1", func(ctx context.Context) []Usage {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a scrape may wait for ever")
		}
		return []Usage{{
			Namespace: "shop", Name: "web", ResidentBytes: 200, GuestBytes: 128, CPUSeconds: 1.5,
			Drives:     []Drive{{Name: "root", Reads: 1, Writes: 2, ReadBytes: 3, WriteBytes: 4, FlushSeconds: 0.25}},
			Interfaces: []Interface{{Name: "default", ReceivedBytes: 5, SentBytes: 6, ReceivedPackets: 7, SentPackets: 8, ReceiveDrops: 9}},
		}}
	})
	const want = `
# HELP kubevirt_vmi_cpu_usage_seconds_total CPU time spent on the guest, emulation included.
# TYPE kubevirt_vmi_cpu_usage_seconds_total counter
kubevirt_vmi_cpu_usage_seconds_total{name="web",namespace="shop",node="node1"} 1.5
# HELP kubevirt_vmi_memory_resident_bytes Resident set size of the process that runs the guest.
# TYPE kubevirt_vmi_memory_resident_bytes gauge
kubevirt_vmi_memory_resident_bytes{name="web",namespace="shop",node="node1"} 200
# HELP kubevirt_vmi_network_receive_packets_dropped_total Packets to the guest that were dropped.
# TYPE kubevirt_vmi_network_receive_packets_dropped_total counter
kubevirt_vmi_network_receive_packets_dropped_total{interface="default",name="web",namespace="shop",node="node1"} 9
# HELP kubevirt_vmi_network_transmit_bytes_total Bytes that the guest sent.
# TYPE kubevirt_vmi_network_transmit_bytes_total counter
kubevirt_vmi_network_transmit_bytes_total{interface="default",name="web",namespace="shop",node="node1"} 6
# HELP kubevirt_vmi_storage_flush_times_seconds_total Time spent on flushes of a disk.
# TYPE kubevirt_vmi_storage_flush_times_seconds_total counter
kubevirt_vmi_storage_flush_times_seconds_total{drive="root",name="web",namespace="shop",node="node1"} 0.25
# HELP kubevirt_vmi_storage_write_traffic_bytes_total Bytes written to a disk.
# TYPE kubevirt_vmi_storage_write_traffic_bytes_total counter
kubevirt_vmi_storage_write_traffic_bytes_total{drive="root",name="web",namespace="shop",node="node1"} 4
`
	err := testutil.CollectAndCompare(collector, strings.NewReader(want),
		"kubevirt_vmi_cpu_usage_seconds_total", "kubevirt_vmi_memory_resident_bytes",
		"kubevirt_vmi_network_transmit_bytes_total", "kubevirt_vmi_storage_write_traffic_bytes_total",
		"kubevirt_vmi_storage_flush_times_seconds_total", "kubevirt_vmi_network_receive_packets_dropped_total")
	if err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(collector); n != 3+8+8 {
		t.Errorf("%d metrics for one guest", n)
	}
}

// A migration must have figures while it runs, and no other guest may have them.
func TestTheFiguresOfAMigration(t *testing.T) {
	collector := NewCollector("node1", func(context.Context) []Usage {
		return []Usage{
			{Namespace: "shop", Name: "db", Migration: &Migration{Total: 100, Processed: 70, Remaining: 40, DirtyRate: 3, TransferRate: 5, ExpectedDowntime: 0.25}},
			{Namespace: "shop", Name: "web"},
		}
	})
	var want, names []string
	for _, m := range []struct{ name, kind, help, value string }{
		{"drydock_vmi_migration_expected_downtime_seconds", "gauge", "How long the guest would stand still if the rest of its memory was sent now.", "0.25"},
		{"kubevirt_vmi_migration_data_bytes_total", "counter", "Memory that a migration has to send.", "100"},
		{"kubevirt_vmi_migration_data_processed_bytes", "gauge", "Memory that a migration has sent.", "70"},
		{"kubevirt_vmi_migration_data_remaining_bytes", "gauge", "Memory that a migration has still to send.", "40"},
		{"kubevirt_vmi_migration_data_total_bytes", "gauge", "Memory that a migration has to send; deprecated by KubeVirt, see kubevirt_vmi_migration_data_bytes_total.", "100"},
		{"kubevirt_vmi_migration_dirty_memory_rate_bytes", "gauge", "Memory that the guest changes in a second while it is migrated.", "3"},
		{"kubevirt_vmi_migration_memory_transfer_rate_bytes", "gauge", "Memory that a migration sends in a second.", "5"},
	} {
		names = append(names, m.name)
		want = append(want, "# HELP "+m.name+" "+m.help, "# TYPE "+m.name+" "+m.kind, m.name+`{name="db",namespace="shop",node="node1"} `+m.value)
	}
	if err := testutil.CollectAndCompare(collector, strings.NewReader(strings.Join(want, "\n")+"\n"), names...); err != nil {
		t.Error(err)
	}
}

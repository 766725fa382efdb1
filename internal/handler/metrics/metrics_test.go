package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/metrictable/tabletest"
)

// known returns figures with these values, in order.
func known(values ...float64) (list [8]Figure) {
	for i, value := range values {
		list[i] = Known(value)
	}
	return list
}

// page is one guest's exposition without the lines of help, which the table has.
const page = `
kubevirt_vmi_cpu_system_usage_seconds_total{name="web",namespace="shop",node="node1"} 0.5
kubevirt_vmi_cpu_usage_seconds_total{name="web",namespace="shop",node="node1"} 1.5
kubevirt_vmi_cpu_user_usage_seconds_total{name="web",namespace="shop",node="node1"} 1
kubevirt_vmi_dirty_rate_bytes_per_second{name="web",namespace="shop",node="node1"} 16
kubevirt_vmi_filesystem_capacity_bytes{disk_name="vda1",file_system_type="ext4",mount_point="/",name="web",namespace="shop",node="node1"} 1000
kubevirt_vmi_filesystem_used_bytes{disk_name="vda1",file_system_type="ext4",mount_point="/",name="web",namespace="shop",node="node1"} 400
kubevirt_vmi_guest_load_15m{name="web",namespace="shop",node="node1"} 0.125
kubevirt_vmi_guest_load_1m{name="web",namespace="shop",node="node1"} 2
kubevirt_vmi_guest_load_5m{name="web",namespace="shop",node="node1"} 0.25
kubevirt_vmi_guest_vcpu_queue{name="web",namespace="shop",node="node1"} 1
kubevirt_vmi_memory_actual_balloon_bytes{name="web",namespace="shop",node="node1"} 120
kubevirt_vmi_memory_available_bytes{name="web",namespace="shop",node="node1"} 110
kubevirt_vmi_memory_cached_bytes{name="web",namespace="shop",node="node1"} 30
kubevirt_vmi_memory_domain_bytes{name="web",namespace="shop",node="node1"} 128
kubevirt_vmi_memory_pgmajfault_total{name="web",namespace="shop",node="node1"} 11
kubevirt_vmi_memory_pgminfault_total{name="web",namespace="shop",node="node1"} 12
kubevirt_vmi_memory_resident_bytes{name="web",namespace="shop",node="node1"} 200
kubevirt_vmi_memory_swap_in_traffic_bytes{name="web",namespace="shop",node="node1"} 13
kubevirt_vmi_memory_swap_out_traffic_bytes{name="web",namespace="shop",node="node1"} 14
kubevirt_vmi_memory_unused_bytes{name="web",namespace="shop",node="node1"} 40
kubevirt_vmi_memory_usable_bytes{name="web",namespace="shop",node="node1"} 60
kubevirt_vmi_memory_used_bytes{name="web",namespace="shop",node="node1"} 50
kubevirt_vmi_network_receive_bytes_total{interface="default",name="web",namespace="shop",node="node1"} 1
kubevirt_vmi_network_receive_errors_total{interface="default",name="web",namespace="shop",node="node1"} 5
kubevirt_vmi_network_receive_packets_dropped_total{interface="default",name="web",namespace="shop",node="node1"} 7
kubevirt_vmi_network_receive_packets_total{interface="default",name="web",namespace="shop",node="node1"} 3
kubevirt_vmi_network_traffic_bytes_total{interface="default",name="web",namespace="shop",node="node1",type="rx"} 1
kubevirt_vmi_network_traffic_bytes_total{interface="default",name="web",namespace="shop",node="node1",type="tx"} 2
kubevirt_vmi_network_transmit_bytes_total{interface="default",name="web",namespace="shop",node="node1"} 2
kubevirt_vmi_network_transmit_errors_total{interface="default",name="web",namespace="shop",node="node1"} 6
kubevirt_vmi_network_transmit_packets_dropped_total{interface="default",name="web",namespace="shop",node="node1"} 8
kubevirt_vmi_network_transmit_packets_total{interface="default",name="web",namespace="shop",node="node1"} 4
kubevirt_vmi_node_cpu_affinity{name="web",namespace="shop",node="node1"} 2
kubevirt_vmi_storage_flush_requests_total{drive="root",name="web",namespace="shop",node="node1"} 3
kubevirt_vmi_storage_flush_times_seconds_total{drive="root",name="web",namespace="shop",node="node1"} 8
kubevirt_vmi_storage_iops_read_total{drive="root",name="web",namespace="shop",node="node1"} 1
kubevirt_vmi_storage_iops_write_total{drive="root",name="web",namespace="shop",node="node1"} 2
kubevirt_vmi_storage_read_times_seconds_total{drive="root",name="web",namespace="shop",node="node1"} 6
kubevirt_vmi_storage_read_traffic_bytes_total{drive="root",name="web",namespace="shop",node="node1"} 4
kubevirt_vmi_storage_write_times_seconds_total{drive="root",name="web",namespace="shop",node="node1"} 7
kubevirt_vmi_storage_write_traffic_bytes_total{drive="root",name="web",namespace="shop",node="node1"} 5
kubevirt_vmi_vcpu_delay_seconds_total{id="0",name="web",namespace="shop",node="node1"} 0.25
kubevirt_vmi_vcpu_seconds_total{id="0",name="web",namespace="shop",node="node1",state="running"} 0.75
kubevirt_vmi_vcpu_wait_seconds_total{id="0",name="web",namespace="shop",node="node1"} 0.25
`

func guestOfAllKinds() Usage {
	return Usage{
		Namespace: "shop", Name: "web",
		Guest: Guest{
			Resident: Known(200), Domain: Known(128), Balloon: Known(120), Available: Known(110), Unused: Known(40), Usable: Known(60),
			CachedFiles: Known(30), SwapIn: Known(13), SwapOut: Known(14), MajorFaults: Known(11), MinorFaults: Known(12),
			CPU: Known(1.5), UserCPU: Known(1), SystemCPU: Known(0.5), DirtyRate: Known(16), Affinity: Known(2), Load1: Known(2), Load5: Known(0.25), Load15: Known(0.125),
		},
		VCPUs:       []VCPU{{ID: 0, Seconds: Known(0.75), Delay: Known(0.25)}},
		Drives:      []Drive{{Name: "root", Figures: known(1, 2, 3, 4, 5, 6, 7, 8)}},
		Interfaces:  []Interface{{Name: "default", Figures: known(1, 2, 3, 4, 5, 6, 7, 8)}},
		Filesystems: []Filesystem{{Disk: "vda1", MountPoint: "/", Type: "ext4", Capacity: Known(1000), Used: Known(400)}},
	}
}

func TestAGuestsMetrics(t *testing.T) {
	collector := NewCollector("node1", func(ctx context.Context) []Usage {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a scrape may wait for ever")
		}
		return []Usage{guestOfAllKinds(), {Namespace: "shop", Name: "web", Guest: Guest{Domain: Known(1)}}}
	})
	if err := testutil.CollectAndCompare(collector, strings.NewReader(tabletest.Page(page))); err != nil {
		t.Error(err)
	}
}

// A figure that is unknown has no line: 0 would be wrong, and a counter would go back.
func TestUnknownFiguresHaveNoLine(t *testing.T) {
	collector := NewCollector("node1", func(context.Context) []Usage {
		return []Usage{{
			Namespace: "shop", Name: "web", Guest: Guest{Resident: Known(math.NaN()), Domain: Known(128), Balloon: Known(math.Inf(1)), Usable: Known(-1), Unused: Known(1 << 61)},
			VCPUs: []VCPU{{ID: 3}}, Drives: []Drive{{Name: "root"}}, Interfaces: []Interface{{Name: "default"}}, Filesystems: []Filesystem{{Disk: "vda1"}},
		}}
	})
	const want = `
kubevirt_vmi_memory_domain_bytes{name="web",namespace="shop",node="node1"} 128
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(tabletest.Page(want))); err != nil {
		t.Error(err)
	}
}

func TestDerivedFigures(t *testing.T) {
	for what, c := range map[string]struct {
		in, out Usage
	}{
		"a load below the number of CPUs": {
			Usage{Guest: Guest{Load1: Known(1.5)}, VCPUs: make([]VCPU, 2)}, Usage{Guest: Guest{Load1: Known(1.5), Queue: Known(0)}, VCPUs: make([]VCPU, 2)},
		},
		"an unknown number of CPUs":      {Usage{Guest: Guest{Load1: Known(3)}}, Usage{Guest: Guest{Load1: Known(3)}}},
		"more usable than there is":      {Usage{Guest: Guest{Available: Known(1), Usable: Known(2)}}, Usage{Guest: Guest{Available: Known(1), Usable: Known(2)}}},
		"what is usable is not reported": {Usage{Guest: Guest{Available: Known(1)}}, Usage{Guest: Guest{Available: Known(1)}}},
	} {
		if c.in.derive(); c.in.Guest != c.out.Guest {
			t.Errorf("%s: %+v", what, c.in.Guest)
		}
	}
}

func TestAFigureIsANumberThatCanBe(t *testing.T) {
	for text, want := range map[string]Figure{
		`0`: Known(0), `1.5`: Known(1.5), `1152921504606846976`: Known(1 << 60),
		`18446744073709551615`: {}, `-1`: {}, `1e999`: {}, `"5"`: {}, `null`: {}, `{"a": 1}`: {}, `[1]`: {}, `true`: {},
	} {
		answer := struct{ Figure Figure }{Known(7)}
		if err := json.Unmarshal([]byte(`{"Figure": `+text+`}`), &answer); err != nil && text != "null" || answer.Figure != want {
			t.Errorf("%s is read as %+v, %v; want %+v", text, answer.Figure, err, want)
		}
	}
	if got := Known(3e9).Times(1e-9); got != Known(3) {
		t.Errorf("3e9 ns are %+v s", got)
	}
	if got := (Figure{}).Times(2); got != (Figure{}) {
		t.Errorf("an unknown figure becomes %+v", got)
	}
}

func TestTheTableHasTheNodesMetrics(t *testing.T) {
	tabletest.Compare(t, metrictable.Handler, NewCollector("node1", nil), NewMigrations("node1"), NewPanics(nil), NewCertificate("node1"), &Process{})
}

func TestTheProcessMetrics(t *testing.T) {
	ready := false
	p := &Process{
		Node: "node1", Ready: func() bool { return ready }, Deprecated: func() []string { return []string{"pc-q35-2.4"} },
		Rounds: func() map[types.NamespacedName]uint64 {
			return map[types.NamespacedName]uint64{{Namespace: "shop", Name: "web"}: 7}
		},
	}
	for _, value := range []string{"0", "1"} {
		want := tabletest.Page(fmt.Sprintf(`
drydock_node_ready_status{node="node1"} %[3]s
kubevirt_info{goversion=%[1]q,kubeversion=%[2]q} 1
kubevirt_node_deprecated_machine_types{machine_type="pc-q35-2.4",node="node1"} 1
kubevirt_virt_handler_ready_status %[3]s
kubevirt_vmi_sync_total{name="web",namespace="shop"} 7
`, runtime.Version(), version.Version, value))
		if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		ready = true
	}
}

func TestTheCertificatesTimesAreShown(t *testing.T) {
	c := NewCertificate("node1")
	if err := testutil.CollectAndCompare(c, strings.NewReader("")); err != nil {
		t.Errorf("without a certificate: %v", err)
	}
	c.Use(time.Unix(2000, 0), time.Unix(1000, 0))
	want := tabletest.Page(`
drydock_node_certificate_expiry_timestamp_seconds{node="node1"} 2000
drydock_node_certificate_renewal_timestamp_seconds{node="node1"} 1000
`)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestPanicsAreCounted(t *testing.T) {
	at := time.Unix(1000, 0)
	here := map[types.NamespacedName]uint64{{Namespace: "shop", Name: "web"}: 1, {Namespace: "shop", Name: "till"}: 1}
	p := NewPanics(func() map[types.NamespacedName]uint64 { return here })
	p.now = func() time.Time { return at }
	web := Panic{Namespace: "shop", Name: "web"}
	for _, one := range []Panic{
		web, web, {"shop", "web", "hyper-v", 0x7e}, {"shop", "web", "hyper-v", 1 << 32}, {"shop", "web", "hyper-v", 0}, {"shop", "web", "invented", 5},
	} {
		p.Add(one)
	}
	want := tabletest.Page(`
kubevirt_vmi_guest_os_panic_total{bugcheck_code="0x7e",name="web",namespace="shop",type="hyper-v"} 1
kubevirt_vmi_guest_os_panic_total{bugcheck_code="unknown",name="web",namespace="shop",type="hyper-v"} 2
kubevirt_vmi_guest_os_panic_total{bugcheck_code="unknown",name="web",namespace="shop",type="unknown"} 3
`)
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	// A guest that panics with another code each time.
	for i := range 2 * maxCodes {
		p.Add(Panic{"shop", "till", "hyper-v", uint64(i + 1)})
	}
	p.Add(Panic{"shop", "till", "hyper-v", 1})
	if n := testutil.CollectAndCount(p); n != 3+maxCodes+1 {
		t.Errorf("there are %d series", n)
	}
	count := p.of[types.NamespacedName{Namespace: "shop", Name: "till"}].count
	if count[panicKind{"hyper-v", otherCode}] != maxCodes || count[panicKind{"hyper-v", "0x1"}] != 2 {
		t.Errorf("the guest with many codes has %v", count)
	}
}

func TestPanicsOfGuestsOnTheNodeStay(t *testing.T) {
	at := time.Unix(1000, 0)
	web, till := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "till"}
	here := map[types.NamespacedName]uint64{web: 1}
	p := NewPanics(func() map[types.NamespacedName]uint64 { return here })
	p.now = func() time.Time { return at }
	p.Add(Panic{Namespace: web.Namespace, Name: web.Name})
	p.Add(Panic{Namespace: till.Namespace, Name: till.Name})
	at = at.Add(time.Second)
	// A tenant creates and deletes VMs that panic.
	for i := range 2 * maxGone {
		p.Add(Panic{Namespace: "evil", Name: fmt.Sprint(i)})
	}
	if n := testutil.CollectAndCount(p); n != maxGone || p.of[web] == nil || p.of[till] != nil {
		t.Errorf("there are %d series, of the guest on the node %+v, of the oldest that left %+v", n, p.of[web], p.of[till])
	}
	at = at.Add(goneFor)
	if n := testutil.CollectAndCount(p); n != maxGone {
		t.Errorf("panics of VMIs that have just left: %d series", n)
	}
	at = at.Add(time.Second)
	if n := testutil.CollectAndCount(p); n != 1 || p.of[web] == nil {
		t.Errorf("after VMIs have left long ago there are %d series", n)
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
	const want = `
drydock_vmi_migration_expected_downtime_seconds{name="db",namespace="shop",node="node1"} 0.25
kubevirt_vmi_migration_data_bytes_total{name="db",namespace="shop",node="node1"} 100
kubevirt_vmi_migration_data_processed_bytes{name="db",namespace="shop",node="node1"} 70
kubevirt_vmi_migration_data_remaining_bytes{name="db",namespace="shop",node="node1"} 40
kubevirt_vmi_migration_data_total_bytes{name="db",namespace="shop",node="node1"} 100
kubevirt_vmi_migration_dirty_memory_rate_bytes{name="db",namespace="shop",node="node1"} 3
kubevirt_vmi_migration_memory_transfer_rate_bytes{name="db",namespace="shop",node="node1"} 5
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(tabletest.Page(want))); err != nil {
		t.Error(err)
	}
}

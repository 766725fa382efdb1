package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMigrationsAreCountedByWhatIsKnownOfThem(t *testing.T) {
	m := NewMigrations("node1")
	m.Add(Migrated{Duration: 2 * time.Second, Downtime: 40 * time.Millisecond, SentBytes: 64 << 20})
	m.Add(Migrated{Duration: 4 * time.Second, SentBytes: 1 << 20})
	m.Add(Migrated{Downtime: time.Minute})
	for name, want := range map[string]string{
		"drydock_vmi_migration_duration_seconds": histogram("drydock_vmi_migration_duration_seconds",
			"How long migrations away from the node have taken, from the first byte sent until the guest ran.", "6",
			"1 0", "2 1", "5 2", "10 2", "30 2", "60 2", "120 2", "300 2", "600 2", "1800 2", "3600 2", "+Inf 2"),
		"drydock_vmi_migration_downtime_seconds": histogram("drydock_vmi_migration_downtime_seconds",
			"How long guests stood still when they migrated away from the node, at most.", "60.04",
			"0.01 0", "0.025 0", "0.05 1", "0.1 1", "0.25 1", "0.5 1", "1 1", "2.5 1", "5 1", "10 1", "+Inf 2"),
		"drydock_vmi_migration_sent_bytes": histogram("drydock_vmi_migration_sent_bytes",
			"What migrations away from the node have sent.", "6.815744e+07",
			"1.6777216e+07 1", "6.7108864e+07 2", "2.68435456e+08 2", "1.073741824e+09 2", "4.294967296e+09 2",
			"1.7179869184e+10 2", "6.8719476736e+10 2", "2.74877906944e+11 2", "1.099511627776e+12 2", "+Inf 2"),
	} {
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
}

// A bucket is its limit and the number of samples below it.
func histogram(name, help, sum string, buckets ...string) string {
	var page strings.Builder
	fmt.Fprintf(&page, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name)
	for _, bucket := range buckets {
		limit, count, _ := strings.Cut(bucket, " ")
		fmt.Fprintf(&page, "%s_bucket{node=\"node1\",le=%q} %s\n", name, limit, count)
	}
	fmt.Fprintf(&page, "%s_sum{node=\"node1\"} %s\n%s_count{node=\"node1\"} 2\n", name, sum, name)
	return page.String()
}

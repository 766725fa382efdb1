package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"drydock.dev/drydock/internal/metrictable"
)

// Migrated is the cost of a migration. An unknown part is 0.
type Migrated struct {
	Duration, Downtime time.Duration
	SentBytes          float64
}

// Migrations counts the costs of migrations away from a node since virt-handler's start. It stores them, since a migration
// can end before the next scrape, without labels of guests, which bounds the memory. KubeVirt has no such metrics.
type Migrations struct{ duration, downtime, sent prometheus.Histogram }

// NewMigrations returns the Migrations of a node.
func NewMigrations(node string) *Migrations {
	histogram := func(name string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: metrictable.Get(name).Help, Buckets: buckets, ConstLabels: prometheus.Labels{"node": node},
		})
	}
	return &Migrations{
		duration: histogram("drydock_vmi_migration_duration_seconds",
			[]float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}),
		downtime: histogram("drydock_vmi_migration_downtime_seconds",
			[]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}),
		sent: histogram("drydock_vmi_migration_sent_bytes", prometheus.ExponentialBuckets(16<<20, 4, 9)),
	}
}

// Add counts a migration's known parts.
func (m *Migrations) Add(one Migrated) {
	for of, value := range map[prometheus.Histogram]float64{
		m.duration: one.Duration.Seconds(), m.downtime: one.Downtime.Seconds(), m.sent: one.SentBytes,
	} {
		if value > 0 {
			of.Observe(value)
		}
	}
}

// Describe sends the metrics' descriptions.
func (m *Migrations) Describe(out chan<- *prometheus.Desc) {
	for _, h := range []prometheus.Histogram{m.duration, m.downtime, m.sent} {
		h.Describe(out)
	}
}

// Collect sends the metrics.
func (m *Migrations) Collect(out chan<- prometheus.Metric) {
	for _, h := range []prometheus.Histogram{m.duration, m.downtime, m.sent} {
		h.Collect(out)
	}
}

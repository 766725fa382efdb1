package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"drydock.dev/drydock/internal/metrictable"
)

// Certificate has the metrics of virt-handler's certificate.
type Certificate struct {
	node string
	used atomic.Pointer[lifetime]
}

type lifetime struct{ expires, renewed time.Time }

var (
	nodeExpiry  = metrictable.Of("drydock_node_certificate_expiry_timestamp_seconds")
	nodeRenewal = metrictable.Of("drydock_node_certificate_renewal_timestamp_seconds")
)

// NewCertificate returns the metrics of a node without a certificate.
func NewCertificate(node string) *Certificate { return &Certificate{node: node} }

// Use replaces the certificate by another one, which expires and is due to be renewed at these times.
func (c *Certificate) Use(expires, renewed time.Time) { c.used.Store(&lifetime{expires, renewed}) }

// Describe sends the metrics' descriptions.
func (c *Certificate) Describe(out chan<- *prometheus.Desc) {
	out <- nodeExpiry.Desc
	out <- nodeRenewal.Desc
}

// Collect sends the metrics.
func (c *Certificate) Collect(out chan<- prometheus.Metric) {
	if is := c.used.Load(); is != nil {
		out <- nodeExpiry.At(float64(is.expires.Unix()), c.node)
		out <- nodeRenewal.At(float64(is.renewed.Unix()), c.node)
	}
}

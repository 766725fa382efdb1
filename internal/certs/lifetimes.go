package certs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"drydock.dev/drydock/internal/metrictable"
)

// Lifetimes are the metrics of the certificates in the Secrets. The zero value has none.
type Lifetimes struct {
	mu sync.Mutex
	of map[string]map[string]lifetime
}

type lifetime struct{ expires, renewed time.Time }

// The parts of a Secret, in labels.
const (
	partAuthority   = "authority"
	partCertificate = "certificate"
)

var (
	expiry  = metrictable.Of("drydock_certificate_expiry_timestamp_seconds")
	renewed = metrictable.Of("drydock_certificate_renewal_timestamp_seconds")
)

// saw replaces the times of a Secret.
func (l *Lifetimes) saw(secret string, is issuance, authority, certificate time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]map[string]lifetime{}
	}
	l.of[secret] = map[string]lifetime{
		partAuthority:   {is.authority.NotAfter, authority},
		partCertificate: {is.certificate.NotAfter, certificate},
	}
}

// Describe implements prometheus.Collector.
func (l *Lifetimes) Describe(out chan<- *prometheus.Desc) {
	out <- expiry.Desc
	out <- renewed.Desc
}

// Collect implements prometheus.Collector.
func (l *Lifetimes) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for secret, parts := range l.of {
		for part, is := range parts {
			out <- expiry.At(float64(is.expires.Unix()), secret, part)
			out <- renewed.At(float64(is.renewed.Unix()), secret, part)
		}
	}
}

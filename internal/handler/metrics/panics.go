package metrics

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"drydock.dev/drydock/internal/metrictable"
)

// Panic is a panic of a guest's system.
type Panic struct {
	Namespace, Name string
	// Kind is QEMU's word, "" without one, Code the stop code of a Windows.
	Kind string
	Code uint64
}

// maxPanics bounds the series of panics: a guest chooses their codes.
const maxPanics = 512

// Panics counts the panics of a node's guests since virt-handler's start. They are stored, since a panic ends the guest
// before the next scrape.
type Panics struct {
	now func() time.Time

	mu    sync.Mutex
	count map[Panic]*panicCount
}

type panicCount struct {
	n    float64
	last time.Time
}

// NewPanics returns a Panics without any.
func NewPanics() *Panics { return &Panics{now: time.Now, count: map[Panic]*panicCount{}} }

var panics = metrictable.Of("kubevirt_vmi_guest_os_panic_total")

// Add counts a panic. Beyond maxPanics, the one that happened longest ago is forgotten.
func (p *Panics) Add(one Panic) {
	if one.Kind != "hyper-v" {
		one.Kind, one.Code = "unknown", 0
	}
	if one.Code > math.MaxUint32 {
		one.Code = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.count[one]
	if c == nil {
		if len(p.count) == maxPanics {
			delete(p.count, p.oldest())
		}
		c = &panicCount{}
		p.count[one] = c
	}
	c.n++
	c.last = p.now()
}

func (p *Panics) oldest() (first Panic) {
	var at time.Time
	for one, c := range p.count {
		if at.IsZero() || c.last.Before(at) {
			first, at = one, c.last
		}
	}
	return first
}

// Describe sends the metric's description.
func (p *Panics) Describe(out chan<- *prometheus.Desc) { out <- panics.Desc }

// Collect sends the metrics.
func (p *Panics) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one, c := range p.count {
		code := "unknown"
		if one.Code != 0 {
			code = fmt.Sprintf("0x%x", one.Code)
		}
		out <- panics.At(c.n, one.Namespace, one.Name, one.Kind, code)
	}
}

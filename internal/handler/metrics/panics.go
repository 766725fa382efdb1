package metrics

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/metrictable"
)

// Panic is a panic of a guest's system.
type Panic struct {
	Namespace, Name string
	Kind            string // QEMU's, "" for none
	Code            uint64 // of Windows
}

const (
	// maxCodes bounds the stop codes of one VMI, which its guest chooses. Others are otherCode.
	maxCodes  = 8
	otherCode = "other"
	// maxGone bounds the VMIs with panics when some of them have left the node.
	maxGone = 512
	// goneFor is how long panics are served after the VMI has left the node: longer than between two scrapes.
	goneFor = 10 * time.Minute
)

// Panics counts the panics of a node's guests since virt-handler's start. It stores them, since a panic ends the guest
// before the next scrape. No guest can displace the panics of another on the node.
type Panics struct {
	now  func() time.Time
	here func() map[types.NamespacedName]uint64 // the keys are the VMIs on the node

	mu sync.Mutex
	of map[types.NamespacedName]*guestPanics
}

type panicKind struct{ kind, code string }

type guestPanics struct {
	count map[panicKind]float64
	last  time.Time
}

// NewPanics returns an empty Panics. The keys from here are the VMIs on the node.
func NewPanics(here func() map[types.NamespacedName]uint64) *Panics {
	return &Panics{now: time.Now, here: here, of: map[types.NamespacedName]*guestPanics{}}
}

var panics = metrictable.Of("kubevirt_vmi_guest_os_panic_total")

// Add counts a panic.
func (p *Panics) Add(one Panic) {
	kind := panicKind{"unknown", "unknown"}
	if one.Kind == "hyper-v" {
		kind.kind = one.Kind
		if one.Code != 0 && one.Code <= math.MaxUint32 {
			kind.code = fmt.Sprintf("0x%x", one.Code)
		}
	}
	name := types.NamespacedName{Namespace: one.Namespace, Name: one.Name}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.of[name]
	if g == nil {
		if len(p.of) >= maxGone {
			p.dropOldest(p.here())
		}
		g = &guestPanics{count: map[panicKind]float64{}}
		p.of[name] = g
	}
	if _, known := g.count[kind]; !known && kind.code != "unknown" && len(g.count) >= maxCodes {
		kind.code = otherCode
	}
	g.count[kind]++
	g.last = p.now()
}

// dropOldest forgets the VMI with the oldest panic, of those that have left the node.
func (p *Panics) dropOldest(here map[types.NamespacedName]uint64) {
	var oldest types.NamespacedName
	var at time.Time
	for name, g := range p.of {
		if _, is := here[name]; !is && (at.IsZero() || g.last.Before(at)) {
			oldest, at = name, g.last
		}
	}
	delete(p.of, oldest)
}

// Describe sends the metric's description.
func (p *Panics) Describe(out chan<- *prometheus.Desc) { out <- panics.Desc }

// Collect sends the metrics, and forgets VMIs that left the node some time ago.
func (p *Panics) Collect(out chan<- prometheus.Metric) {
	here := p.here()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, g := range p.of {
		if _, is := here[name]; !is && p.now().Sub(g.last) > goneFor {
			delete(p.of, name)
			continue
		}
		for kind, n := range g.count {
			out <- panics.At(n, name.Namespace, name.Name, kind.kind, kind.code)
		}
	}
}

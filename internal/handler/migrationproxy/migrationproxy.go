// Package migrationproxy carries migrations from one node's QEMU to another's, and the facts that their virt-handlers
// exchange.
//
//	QEMU (source) -> unix socket -> Forward -> TLS -> Server -> unix socket -> QEMU (target)
//	driver        <-> Facts, Control        <- TLS ->   Server  <-> Target, Facts <-> driver
//
// It owns the connections, their authentication (the other node's certificate, and Registry) and their bounds: the number
// of connections, and the end of a silent one. It must not decide a fact's consequences for a guest (package switchover
// does), and knows neither QEMU's monitor nor the API server.
//
// The end of a part has these effects:
//
//	QEMU, either one      its connections end; the other QEMU sees the end of its own
//	source virt-handler   streams and control connection end at once; QEMU's migration fails
//	                      on both sides, and the next virt-handler opens a control connection
//	target virt-handler   the same; the source reconnects until its context ends
//	the network           the control connection is given up after migrationwire.Silence,
//	                      streams after streamTimeout
//	a driver              its context ends, or it takes the Target back (Expectations): all
//	                      connections of the migration end
package migrationproxy

import (
	"slices"
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Facts has one side's facts about a migration, which are only added.
type Facts struct {
	mu      sync.Mutex
	said    []migrationwire.Message
	changed chan struct{}
}

// Publish adds a fact, if it is new.
func (f *Facts) Publish(kind migrationwire.Kind) {
	f.publish(kind, migrationwire.Message{Kind: kind})
}

// PublishDisks adds the disks, once.
func (f *Facts) PublishDisks(disks []migrationwire.Disk) {
	f.publish(migrationwire.Plugs, migrationwire.SplitDisks(disks)...)
}

// PublishTransport adds an Offer or Agreed, once.
func (f *Facts) PublishTransport(kind migrationwire.Kind, t migrationwire.Transport) {
	f.publish(kind, migrationwire.Message{Kind: kind, Transport: &t})
}

func (f *Facts) publish(kind migrationwire.Kind, messages ...migrationwire.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.said, func(m migrationwire.Message) bool { return m.Kind == kind }) {
		return
	}
	f.said = append(f.said, messages...)
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// after returns all but the first n facts, and a channel that is closed when there are more.
func (f *Facts) after(n int) ([]migrationwire.Message, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return slices.Clone(f.said[n:]), f.changed
}

package migration

import (
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// transport is one side's transport. The first value counts, since QEMU is set to it. It is safe for concurrent use.
type transport struct {
	mu          sync.Mutex
	chosen      *switchover.Transport
	tellsLoaded bool
}

func (t *transport) set(said migrationwire.Transport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.chosen == nil {
		t.chosen, t.tellsLoaded = &switchover.Transport{Channels: said.Channels, PostCopy: said.PostCopy}, said.TellsLoaded
	}
}

func (t *transport) get() (said switchover.Transport, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.chosen == nil {
		return switchover.Transport{}, false
	}
	return *t.chosen, true
}

// lacksLoaded reports whether the target never says that it has loaded the guest.
func (t *transport) lacksLoaded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.chosen != nil && !t.tellsLoaded
}

func onWire(t switchover.Transport) migrationwire.Transport {
	return migrationwire.Transport{Channels: t.Channels, PostCopy: t.PostCopy}
}

// Offer sends the source's proposed transport to the target; the first offer counts.
func (s *Source) Offer(t switchover.Transport) {
	s.offered = t
	s.mine.PublishTransport(migrationwire.Offer, onWire(t))
}

// Transport returns the agreed transport, limited to the offer. An older target sends none, and receives the guest on one
// connection.
func (s *Source) Transport() switchover.Transport {
	t, _ := s.agreed.get()
	return switchover.Transport{Channels: min(t.Channels, s.offered.Channels), PostCopy: t.PostCopy && s.offered.PostCopy}
}

// RecordPostCopySwitch records that QEMU was told to send the guest before its memory.
func (s *Source) RecordPostCopySwitch() { s.told.Switched, s.switched = true, s.env.Now() }

// Offered returns the source's offer; false until there is one.
func (t *Target) Offered() (switchover.Transport, bool) { return t.offer.get() }

// Agree tells the source the transport to which QEMU is set from now on.
func (t *Target) Agree(taken switchover.Transport) {
	agreed := onWire(taken)
	agreed.TellsLoaded = true
	t.agreed.set(agreed)
	t.mine.PublishTransport(migrationwire.Agreed, agreed)
}

// Agreed reports whether QEMU waits for the guest with a transport that was sent to the source.
func (t *Target) Agreed() bool {
	_, known := t.agreed.get()
	return known
}

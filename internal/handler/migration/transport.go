package migration

import (
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/switchover"
)

// transport is what one side has said of how the guest is sent; the first word counts, as QEMU has been
// set to it. Its methods may be called from several goroutines.
type transport struct {
	mu   sync.Mutex
	said *switchover.Transport
}

func (t *transport) set(said migrationwire.Transport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said == nil {
		t.said = &switchover.Transport{Channels: said.Channels, PostCopy: said.PostCopy}
	}
}

func (t *transport) get() (said switchover.Transport, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said == nil {
		return switchover.Transport{}, false
	}
	return *t.said, true
}

func onWire(t switchover.Transport) migrationwire.Transport {
	return migrationwire.Transport{Channels: t.Channels, PostCopy: t.PostCopy}
}

// Offer has the target hear how this side would send the guest; the first offer counts.
func (s *Source) Offer(t switchover.Transport) {
	s.offered = t
	s.mine.PublishTransport(migrationwire.Offer, onWire(t))
}

// Transport is how the target's QEMU takes the guest, which is no more than was offered. A target from before
// there was a choice says nothing of it, and takes the guest on one connection.
func (s *Source) Transport() switchover.Transport {
	t, _ := s.agreed.get()
	return switchover.Transport{Channels: min(t.Channels, s.offered.Channels), PostCopy: t.PostCopy && s.offered.PostCopy}
}

// Connected reports whether the target's virt-handler is reached.
func (s *Source) Connected() bool { return s.heard.connected() }

// Switches notes that QEMU was told to send the guest before its memory.
func (s *Source) Switches() { s.switched = true }

// Switched reports whether QEMU was told so.
func (s *Source) Switched() bool { return s.switched }

// Offered is how the source would send the guest; false as long as it has not said so.
func (t *Target) Offered() (switchover.Transport, bool) { return t.offer.get() }

// Agree has the source hear how QEMU takes the guest, which it does from now on.
func (t *Target) Agree(taken switchover.Transport) {
	t.agreed.set(onWire(taken))
	t.mine.PublishTransport(migrationwire.Agreed, onWire(taken))
}

// Agreed reports whether QEMU waits for the guest in the way that the source knows of.
func (t *Target) Agreed() bool {
	_, known := t.agreed.get()
	return known
}

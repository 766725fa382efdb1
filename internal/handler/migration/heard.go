package migration

import (
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/switchover"
)

// heard is what the other side has said, on any connection, and whether there is one. Its methods
// may be called from several goroutines.
type heard struct {
	wake func()
	now  func() time.Time

	mu sync.Mutex
	// facts are when each was heard first: every new connection repeats them.
	facts map[switchover.Fact]time.Time
	open  int
}

func (h *heard) add(kind migrationwire.Kind) {
	now, fact := h.now(), switchover.Fact(kind)
	h.mu.Lock()
	if h.facts == nil {
		h.facts = map[switchover.Fact]time.Time{}
	}
	if h.facts[fact].IsZero() {
		h.facts[fact] = now
	}
	h.mu.Unlock()
	h.wake()
}

func (h *heard) has(fact switchover.Fact) bool { return !h.at(fact).IsZero() }

// at is when a fact was heard first; zero if it was not.
func (h *heard) at(fact switchover.Fact) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts[fact]
}

func (h *heard) connect(began bool) {
	h.mu.Lock()
	if began {
		h.open++
	} else {
		h.open--
	}
	h.mu.Unlock()
	h.wake()
}

func (h *heard) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open > 0
}

package migration

import (
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// received has the other side's facts. It is safe for concurrent use.
type received struct {
	wake func()
	now  func() time.Time

	mu    sync.Mutex
	facts map[switchover.Fact]time.Time // when each first came: every connection repeats them
	open  int                           // connections
}

func (h *received) add(kind migrationwire.Kind) {
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

func (h *received) has(fact switchover.Fact) bool { return !h.at(fact).IsZero() }

// at returns zero for a fact that was not received.
func (h *received) at(fact switchover.Fact) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts[fact]
}

func (h *received) countConnection(began bool) {
	h.mu.Lock()
	if began {
		h.open++
	} else {
		h.open--
	}
	h.mu.Unlock()
	h.wake()
}

func (h *received) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open > 0
}

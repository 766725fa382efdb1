package migration

import (
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/switchover"
)

// heard is what the other side has said, on any connection, and whether there is one. Its methods
// may be called from several goroutines.
type heard struct {
	wake func()

	mu    sync.Mutex
	facts map[switchover.Fact]bool
	open  int
}

func (h *heard) add(kind migrationwire.Kind) {
	h.mu.Lock()
	if h.facts == nil {
		h.facts = map[switchover.Fact]bool{}
	}
	h.facts[switchover.Fact(kind)] = true
	h.mu.Unlock()
	h.wake()
}

func (h *heard) has(fact switchover.Fact) bool {
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

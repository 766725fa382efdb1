package job

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// recent is the interval over which the speed is measured, for the remaining time.
const recent = 10 * time.Second

// Meter keeps a worker's progress and serves it. It is safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	now    func() time.Time
	state  transfer.Progress
	began  time.Time
	from   int64
	before float64
}

// NewMeter returns a meter at zero.
func NewMeter() *Meter { return &Meter{now: time.Now} }

// Step describes the worker's current step.
func (m *Meter) Step(words string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Step = words
}

// Ready sets whether an upload is accepted now.
func (m *Meter) Ready(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Ready = ready
}

// Reset clears the progress, because the work begins again.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Done, m.state.Total, m.before, m.began = 0, 0, 0, time.Time{}
}

// Advance sets the completed and total bytes (0 or less if unknown). It ignores a decrease.
func (m *Meter) Advance(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if m.began.IsZero() {
		m.began, m.from = now, done
	}
	m.state.Total = max(total, 0)
	m.state.Done = max(m.state.Done, done)
	if passed := now.Sub(m.began); passed >= recent {
		m.before = float64(m.state.Done-m.from) / passed.Seconds()
		m.began, m.from = now, m.state.Done
	}
}

// Progress returns the worker's progress.
func (m *Meter) Progress() transfer.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.state
	state.SecondsLeft = -1
	speed := m.before
	if passed := m.now().Sub(m.began); speed == 0 && !m.began.IsZero() && passed > 0 {
		speed = float64(m.state.Done-m.from) / passed.Seconds()
	}
	if speed > 0 && state.Total > 0 {
		state.SecondsLeft = int64(float64(max(state.Total-state.Done, 0)) / speed)
	}
	return state
}

// ServeHTTP responds with the progress.
func (m *Meter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(m.Progress()) // a client that is gone asks again
}

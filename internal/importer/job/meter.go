package job

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// recent is how much of the past the estimate of the time left rests on.
const recent = 10 * time.Second

// Meter keeps a worker's progress, and serves it. Its methods may be called from
// any goroutine.
type Meter struct {
	mu    sync.Mutex
	now   func() time.Time
	state transfer.Progress
	// began and from are the beginning of the stretch that the speed is taken from.
	began time.Time
	from  int64
	// before is what the speed was in the stretch before.
	before float64
}

// NewMeter is a meter at zero.
func NewMeter() *Meter { return &Meter{now: time.Now} }

// Step says in words what the worker does now.
func (m *Meter) Step(words string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Step = words
}

// Ready reports whether an upload is taken now.
func (m *Meter) Ready(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Ready = ready
}

// Reset forgets how far the work was: nothing of it is kept, and it begins again.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Done, m.state.Total, m.before, m.began = 0, 0, 0, time.Time{}
}

// Advance says how many bytes of the content are done, and how many there are (0
// or less while that is not known). What goes back is not believed.
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

// Progress is how far the worker is.
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

// ServeHTTP answers with the progress.
func (m *Meter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(m.Progress()) // who asked is gone, and asks again
}

// Package concerntest drives a concern's methods against a model of QEMU (qmptest), as the driver would. It is for
// tests.
package concerntest

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
)

// patience is how long a test waits for an event.
const patience = 4 * time.Minute

// Driven is a concern with its model of QEMU.
type Driven[Seen any, P concern.Plan] struct {
	Concern concern.Concern[Seen, P]
	Monitor *qmp.Client
	t       *testing.T
	// woken has the events that the concern called news.
	woken chan struct{}

	mu    sync.Mutex
	round concern.Round
}

// Drive connects a concern to a model of QEMU. round has the first facts.
func Drive[Seen any, P concern.Plan](t *testing.T, qemu *qmptest.Server, c concern.Concern[Seen, P], round concern.Round) *Driven[Seen, P] {
	t.Helper()
	d := &Driven[Seen, P]{Concern: c, t: t, woken: make(chan struct{}, 1), round: round}
	if d.round.Now.IsZero() {
		d.round.Now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	}
	monitor, err := qmp.New(t.Context(), qemu.Dial(), func(e qmp.Event) {
		if c.HandleEvent(e) {
			select {
			case d.woken <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = monitor.Close() })
	d.Monitor = monitor
	return d
}

// Round returns the facts of the next round.
func (d *Driven[Seen, P]) Round() concern.Round {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.round
}

// Change changes the facts of the next round.
func (d *Driven[Seen, P]) Change(change func(*concern.Round)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.round)
}

// Pass lets time pass.
func (d *Driven[Seen, P]) Pass(by time.Duration) {
	d.Change(func(r *concern.Round) { r.Now = r.Now.Add(by) })
}

// Look runs one round and returns its plan.
func (d *Driven[Seen, P]) Look() P {
	d.t.Helper()
	seen, err := d.Concern.Observe(d.t.Context(), concern.QueryOf(d.Monitor), d.Round())
	if err != nil {
		d.t.Logf("QEMU did not answer: %v", err)
	}
	return d.Concern.Decide(d.Round(), seen)
}

// Act carries a plan out.
func (d *Driven[Seen, P]) Act(plan P) error {
	return d.Concern.Act(d.t.Context(), d.Monitor, d.Round(), plan)
}

// Await runs a round after each event until the plan is as wanted.
func (d *Driven[Seen, P]) Await(what string, reached func(P) bool) P {
	d.t.Helper()
	for timeout := time.After(patience); ; {
		p := d.Look()
		if reached(p) {
			return p
		}
		select {
		case <-d.woken:
		case <-timeout:
			d.t.Fatalf("waited for %s in vain: %+v", what, p)
		}
	}
}

// AwaitNews waits for an event that is news to the concern.
func (d *Driven[Seen, P]) AwaitNews() {
	d.t.Helper()
	select {
	case <-d.woken:
	case <-time.After(patience):
		d.t.Fatal("waited for news in vain")
	}
}

// Question is a question that a concern puts to QEMU again after an event.
type Question[P concern.Plan] struct {
	Command, Event string
	// Known reports whether the answer of the model is known.
	Known func(P) bool
}

// CheckQuestion checks that a concern asks again after an event during a question, since the answer may be older than
// the event, and that it repeats a question that failed.
func CheckQuestion[Seen any, P concern.Plan](t *testing.T, qemu *qmptest.Server, d *Driven[Seen, P], q Question[P]) {
	t.Helper()
	before := qemu.Executed(q.Command)
	event := func() {
		qemu.Emit(q.Event, map[string]any{})
		d.AwaitNews()
	}
	var known P
	asks := func(when string, want int) {
		t.Helper()
		known = d.Look()
		if got := qemu.Executed(q.Command) - before; got != want {
			t.Fatalf("%s QEMU was asked %d times, want %d", when, got, want)
		}
	}
	outdated := func() {
		qemu.Override(q.Command, func(json.RawMessage) (any, error) {
			event()
			qemu.Override(q.Command, nil)
			return []any{}, nil
		})
	}
	outdated()
	asks("at first", 1)
	asks("after a change during the first question", 2)
	asks("when the answer is known", 2)
	if !q.Known(known) {
		t.Errorf("the second answer is not known: %+v", known)
	}
	outdated()
	event()
	asks("after a change", 3)
	asks("after a change during another question", 4)
	asks("when the answer is known again", 4)
	qemu.Override(q.Command, func(json.RawMessage) (any, error) { return nil, errors.New("not now") })
	event()
	asks("when QEMU does not answer", 5)
	if !q.Known(known) {
		t.Errorf("what was known is forgotten: %+v", known)
	}
	qemu.Override(q.Command, nil)
	asks("after a question that failed", 6)
	asks("when that has been answered", 6)
}

// Background returns a function that runs others on goroutines for which the test waits.
func Background(t *testing.T) func(func()) {
	t.Helper()
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	return func(f func()) { running.Go(f) }
}

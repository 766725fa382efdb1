package vmihandler

import (
	"strings"
	"testing"
	"time"
)

// TestTheStoryOfAStall follows an I/O error through virt-handler's decisions, a second at a time.
func TestTheStoryOfAStall(t *testing.T) {
	start := time.Unix(1000, 0)
	var s Stall
	for _, step := range []struct {
		at     int // seconds
		state  string
		told   bool // to continue, after the state was seen
		paused bool
		active bool
		due    bool
		after  time.Duration
	}{
		{at: 0, state: "running"},
		{at: 1, state: "io-error", active: true, after: 2 * time.Second},
		{at: 2, state: "io-error", active: true, after: time.Second},
		{at: 3, state: "io-error", active: true, due: true},
		{at: 3, state: "io-error", active: true, due: true, told: true},
		{at: 4, state: "io-error", active: true, after: 3 * time.Second},
		{at: 7, state: "io-error", active: true, due: true, told: true},
		{at: 8, state: "running", active: true, after: 5 * time.Second},
		{at: 10, state: "running", active: true, after: 3 * time.Second},
		// It fails again before it has settled: the backoff must go on.
		{at: 11, state: "io-error", active: true, after: 8 * time.Second},
		{at: 19, state: "io-error", active: true, paused: true},
		{at: 20, state: "io-error", active: true, due: true, told: true},
		{at: 21, state: "running", active: true, after: 5 * time.Second},
		{at: 26, state: "running"},
		// Another error must start a new backoff.
		{at: 27, state: "io-error", active: true, after: 2 * time.Second},
		{at: 28, state: "running", active: true, after: 5 * time.Second},
		{at: 29, state: "paused"},
		{at: 30, state: "io-error", active: true, after: 2 * time.Second},
		{at: 31, state: "internal-error"},
	} {
		now := start.Add(time.Duration(step.at) * time.Second)
		s = s.Next(step.state, now)
		due, after := s.Resume(step.paused, now)
		if s.Active() != step.active || due != step.due || after != step.after {
			t.Fatalf("at %d s in %s: active %v, due %v, after %v; want %v, %v, %v",
				step.at, step.state, s.Active(), due, after, step.active, step.due, step.after)
		}
		if step.told {
			s = s.AfterResume(now)
		}
	}
}

func TestAttemptsToResumeAreNeverFurtherApartThan30Seconds(t *testing.T) {
	now := time.Unix(1000, 0)
	s := Stall{}.Next("io-error", now)
	for range 100 {
		due, after := s.Resume(false, now)
		if due || after > longestResume || after <= 0 {
			t.Fatalf("after %d attempts: due %v, after %v", s.Attempts(), due, after)
		}
		now = now.Add(after)
		if due, _ = s.Resume(false, now); !due {
			t.Fatalf("not due after %d attempts", s.Attempts())
		}
		s = s.AfterResume(now).Next("io-error", now)
	}
}

func TestAMessageNamesOnlySoManyDisks(t *testing.T) {
	message := stallMessage(make([]FailedDisk, 200), false)
	if len(message) > 1000 || !strings.Contains(message, "and 195 more disks failed") {
		t.Error(message)
	}
}

package driver

import (
	"errors"
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/vmi"
)

var errBroken = errors.New("broken")

func TestBackOffGrowsAndEnds(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var tr troubles
	last := time.Duration(0)
	for attempt := 1; attempt <= 20; attempt++ {
		tr.note(vmi.Start, errBroken, now)
		step, after := tr.hold(vmi.Start, 0, vmi.Observed{Now: now})
		if step != vmi.Wait || after < last || after > longestDelay {
			t.Fatalf("after %d failures: %s for %v, before it was %v", attempt, step, after, last)
		}
		if said := tr.visible() != nil; said != (attempt >= worthSaying) {
			t.Errorf("after %d failures: visible %v", attempt, said)
		}
		last = after
		now = now.Add(after)
		if step, _ := tr.hold(vmi.Start, 0, vmi.Observed{Now: now}); step != vmi.Start {
			t.Fatalf("after the wait: %s", step)
		}
	}
	if last != longestDelay {
		t.Errorf("the longest wait was %v", last)
	}
	tr.note(vmi.Start, nil, now)
	if step, _ := tr.hold(vmi.Start, 0, vmi.Observed{Now: now}); step != vmi.Start || tr.visible() != nil {
		t.Error("the trouble outlives its end")
	}
}

func TestReportsGoOnInTrouble(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var tr troubles
	for range worthSaying {
		tr.note(vmi.Start, errBroken, now)
	}
	if step, _ := tr.hold(vmi.Start, 0, vmi.Observed{Now: now, Changed: true}); step != vmi.Report {
		t.Errorf("with something to say: %s", step)
	}
	tr.note(vmi.Report, nil, now)
	if tr.visible() == nil {
		t.Error("a report that succeeded has ended the trouble that it told of")
	}
	tr.note(vmi.Report, errors.New("no API server"), now)
	if !errors.Is(tr.visible(), errBroken) {
		t.Errorf("the trouble with reporting hides the other: %v", tr.visible())
	}
	if step, after := tr.hold(vmi.Start, 0, vmi.Observed{Now: now, Changed: true}); step != vmi.Wait || after != firstDelay {
		t.Errorf("with an API server that is away: %s for %v", step, after)
	}
	// Another step that succeeds shows that the first one is out of the way.
	tr.note(vmi.Attach, nil, now)
	if tr.visible() != nil {
		t.Errorf("still in trouble: %v", tr.visible())
	}
}

func TestReportsBackOffToo(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var tr troubles
	tr.note(vmi.Report, errBroken, now)
	if step, after := tr.hold(vmi.Report, 0, vmi.Observed{Now: now, Changed: true}); step != vmi.Wait || after != firstDelay {
		t.Errorf("%s for %v", step, after)
	}
	// A guest that must be stopped is, whatever the API server says.
	if step, _ := tr.hold(vmi.Stop, 0, vmi.Observed{Now: now, Changed: true}); step != vmi.Stop {
		t.Errorf("%s", step)
	}
}

package retry

import (
	"errors"
	"testing"
	"time"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

var errBroken = errors.New("broken")

func TestBackOffGrowsAndEnds(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var f Failures
	last := time.Duration(0)
	for attempt := 1; attempt <= 20; attempt++ {
		f.Record(vmihandler.Start, errBroken, now)
		step, after := f.ApplyBackoff(vmihandler.Start, 0, vmihandler.Observed{Now: now})
		if step != vmihandler.Wait || after < last || after > longestDelay {
			t.Fatalf("after %d failures: %s for %v, before it was %v", attempt, step, after, last)
		}
		if said := f.Visible() != nil; said != (attempt >= reportAfter) {
			t.Errorf("after %d failures: visible %v", attempt, said)
		}
		last = after
		now = now.Add(after)
		if step, _ := f.ApplyBackoff(vmihandler.Start, 0, vmihandler.Observed{Now: now}); step != vmihandler.Start {
			t.Fatalf("after the wait: %s", step)
		}
	}
	if last != longestDelay {
		t.Errorf("the longest wait was %v", last)
	}
	f.Record(vmihandler.Start, nil, now)
	if step, _ := f.ApplyBackoff(vmihandler.Start, 0, vmihandler.Observed{Now: now}); step != vmihandler.Start || f.Visible() != nil {
		t.Error("the failure outlives its end")
	}
}

func TestReportsGoOnWhileAStepFails(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var f Failures
	for range reportAfter {
		f.Record(vmihandler.Start, errBroken, now)
	}
	if step, _ := f.ApplyBackoff(vmihandler.Start, 0, vmihandler.Observed{Now: now, Changed: true}); step != vmihandler.Report {
		t.Errorf("with something to say: %s", step)
	}
	f.Record(vmihandler.Report, nil, now)
	if f.Visible() == nil {
		t.Error("a report that succeeded has ended the failure that it reported")
	}
	f.Record(vmihandler.Report, errors.New("no API server"), now)
	if !errors.Is(f.Visible(), errBroken) {
		t.Errorf("the failure of a report hides the other: %v", f.Visible())
	}
	if step, after := f.ApplyBackoff(vmihandler.Start, 0, vmihandler.Observed{Now: now, Changed: true}); step != vmihandler.Wait || after != firstDelay {
		t.Errorf("with an API server that is away: %s for %v", step, after)
	}
	// Another step that succeeds shows that the first one is out of the way.
	f.Record(vmihandler.Attach, nil, now)
	if f.Visible() != nil {
		t.Errorf("the failure is still reported: %v", f.Visible())
	}
}

func TestReportsBackOffToo(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var f Failures
	f.Record(vmihandler.Report, errBroken, now)
	if step, after := f.ApplyBackoff(vmihandler.Report, 0, vmihandler.Observed{Now: now, Changed: true}); step != vmihandler.Wait || after != firstDelay {
		t.Errorf("%s for %v", step, after)
	}
	// A guest is stopped even while reports to the API server fail.
	if step, _ := f.ApplyBackoff(vmihandler.Stop, 0, vmihandler.Observed{Now: now, Changed: true}); step != vmihandler.Stop {
		t.Errorf("%s", step)
	}
}

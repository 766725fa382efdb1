package guest

import (
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

func TestDecideVerbs(t *testing.T) {
	seen := func(state string, halted, paused bool) observation {
		return observation{state: runstate.Of(state), halted: halted, paused: paused}
	}
	type want struct{ pause, unpause, reset, resume action }
	for name, c := range map[string]struct {
		seen observation
		want want
	}{
		"a guest that runs":                              {seen("running", false, false), want{stop, refuse, reset, none}},
		"one that its user has paused":                   {seen("paused", false, false), want{refuse, proceed, reset, none}},
		"one that was reset while it was paused":         {seen("prelaunch", false, false), want{refuse, proceed, reset, none}},
		"one that waits for volumes":                     {seen("prelaunch", true, false), want{mark, refuse, reset, none}},
		"one that waits and that its user has paused":    {seen("prelaunch", true, true), want{refuse, unmark, reset, none}},
		"one that an I/O error has stopped":              {seen("io-error", false, false), want{stop, proceed, resetAndRun, proceed}},
		"one that its user has paused besides":           {seen("io-error", false, true), want{stop, proceed, reset, none}},
		"one that has suspended itself":                  {seen("suspended", false, false), want{refuse, wakeUp, reset, none}},
		"one that its watchdog has stopped":              {seen("watchdog", false, false), want{refuse, proceed, reset, none}},
		"one that arrives from elsewhere":                {seen("inmigrate", false, false), want{refuse, refuse, refuse, none}},
		"one that has moved":                             {seen("postmigrate", false, false), want{refuse, refuse, refuse, none}},
		"one that can't continue":                        {seen("internal-error", false, false), want{refuse, refuse, refuse, none}},
		"one in a state that only a newer QEMU has":      {seen("hibernating", false, false), want{refuse, refuse, refuse, none}},
		"one that runs, with a pause that was left over": {seen("running", false, true), want{stop, refuse, reset, none}},
	} {
		got := want{
			decidePause(c.seen).action, decideUnpause(c.seen).action, decideReset(c.seen).action, decideResume(c.seen).action,
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		for _, decide := range []func(observation) decision{decidePause, decideUnpause, decideReset} {
			if d := decide(c.seen); (d.action == refuse) != (d.message != "") {
				t.Errorf("%s: a refusal without a reason, or the other way round: %+v", name, d)
			}
		}
	}
}

func TestWhatIsKnownOfAGuest(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	failed := []guestlifecycle.FailedDisk{{Volume: "root"}}
	said := func(state string, waits, paused bool) answers {
		a := answers{runState: state, waits: waits, paused: paused}
		if state == runstate.IOError {
			a.failed = failed
		}
		return a
	}
	for name, c := range map[string]struct {
		answers                          []answers
		halted, paused, stalled, started bool
	}{
		"a guest that runs":                    {[]answers{said("running", false, false)}, false, false, false, true},
		"one that waits for volumes":           {[]answers{said("prelaunch", true, false)}, true, false, false, false},
		"one that waits and is paused":         {[]answers{said("prelaunch", true, true)}, true, true, false, false},
		"one that was started paused":          {[]answers{said("prelaunch", false, true)}, false, false, false, true},
		"one that has waited":                  {[]answers{said("prelaunch", true, false), said("running", false, false)}, false, false, false, true},
		"one that has an I/O error":            {[]answers{said("io-error", false, false)}, false, false, true, true},
		"one with an I/O error and a pause":    {[]answers{said("io-error", false, true)}, false, true, true, true},
		"one that arrives":                     {[]answers{said("inmigrate", true, true)}, false, false, false, false},
		"one that has arrived":                 {[]answers{said("inmigrate", true, true), said("running", false, false)}, false, false, false, true},
		"one that runs again after its error":  {[]answers{said("io-error", false, false), said("running", false, false)}, false, false, true, true},
		"one that is stopped after that error": {[]answers{said("io-error", false, false), said("paused", false, false)}, false, false, false, true},
	} {
		var m memory
		for _, a := range c.answers {
			m = m.with(a, now)
		}
		f := m.facts(now)
		if f.Halted != c.halted || f.PausedByUser != c.paused || f.Stalled != c.stalled || m.started != c.started || f.Resume {
			t.Errorf("%s: %+v, started %v", name, f, m.started)
		}
		if c.stalled != slices.Equal(f.FailedDisks, failed) {
			t.Errorf("%s: the failed disks are %v", name, f.FailedDisks)
		}
		if later := m.at(now.Add(time.Hour)); m.runState == runstate.Running && (later.stall.Active() || later.failedDisks != nil) {
			t.Errorf("%s: after an hour, known is %+v", name, later)
		}
	}
}

func TestWhenMarkersAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		started bool
		state   string
		want    bool
	}{
		"a guest that nothing is known of":       {false, runstate.Running, true},
		"one that has run":                       {true, runstate.Running, false},
		"one that was reset while it was paused": {true, runstate.Prelaunch, false},
		"one that has an I/O error":              {true, runstate.IOError, true},
	} {
		if got := (memory{started: c.started}).asksMarkers(c.state); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

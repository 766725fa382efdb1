package guest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func TestWhenAGuestIsMigrating(t *testing.T) {
	arrived := Migration{Handover: machine.Handover{Incoming: "m0", Ran: true}, Status: migrationstatus.Completed}
	for name, c := range map[string]struct {
		migration Migration
		want      bool
	}{
		"no migration":                       {Migration{}, false},
		"one that has arrived and runs":      {arrived, false},
		"one that is being sent":             {Migration{Status: migrationstatus.Active}, true},
		"one whose last migration was ended": {Migration{Status: migrationstatus.Canceled}, false},
	} {
		a := answers{runState: "running", migration: c.migration}
		if got := a.observation().Migrating; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheRunStateOfAGuestInAMigration(t *testing.T) {
	begun, incoming := machine.Handover{Begun: "m"}, machine.Handover{Incoming: "m"}
	for name, c := range map[string]struct {
		migration Migration
		want      string
	}{
		"no migration":                          {Migration{RunState: "paused"}, "paused"},
		"a target without its guest":            {Migration{RunState: "inmigrate", Handover: incoming}, "inmigrate"},
		"a target that may not run yet":         {Migration{RunState: "paused", Handover: incoming, Status: migrationstatus.Completed}, "inmigrate"},
		"one whose guest has an I/O error":      {Migration{RunState: "io-error", Handover: incoming, Status: migrationstatus.Completed}, "inmigrate"},
		"one that can't continue":               {Migration{RunState: "internal-error", Handover: incoming}, "internal-error"},
		"a target that may run":                 {Migration{RunState: "paused", Handover: machine.Handover{Incoming: "m", Ran: true}}, "paused"},
		"a source that has sent its guest":      {Migration{RunState: "postmigrate", Handover: begun, Status: migrationstatus.Completed}, "postmigrate"},
		"a source that has not":                 {Migration{RunState: "postmigrate", Handover: begun, Status: migrationstatus.Canceled}, "io-error"},
		"a source whose migration has failed":   {Migration{RunState: "postmigrate", Handover: begun, Status: migrationstatus.Failed}, "io-error"},
		"a QEMU that somebody else has told so": {Migration{RunState: "postmigrate", Status: migrationstatus.Failed}, "postmigrate"},
	} {
		if got := guestRunState(c.migration); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestQEMUsFiguresAreBounded: if a guest has taken QEMU over, its figures are at worst wrong.
func TestQEMUsFiguresAreBounded(t *testing.T) {
	var info migrationInfo
	text := `{"status": "` + strings.Repeat("x", 1000) + `", "error-desc": "e", "total-time": 1e300, "downtime": -5, "expected-downtime": 7,
		"cpu-throttle-percentage": 1e9, "ram": {"total": 1e300, "transferred": -1, "remaining": 4096, "page-size": 1e300, "dirty-pages-rate": 1e300, "mbps": 8}}`
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(err)
	}
	m := migrationOf(info, runstate.Running, nil)
	want := Migration{RunState: runstate.Running, Status: migrationstatus.Status(strings.Repeat("x", maxStatus)), Progress: Progress{
		Total: maxFigure, Remaining: 4096, DirtyRate: maxFigure, Rate: 1e6, Expected: 7 * time.Millisecond, Throttle: 100, Elapsed: m.Progress.Elapsed,
	}}
	if m != want || m.Progress.Elapsed <= 0 {
		t.Errorf("got %+v", m)
	}
	if failed := migrationOf(migrationInfo{Status: "failed", Error: strings.Repeat("ä", 1000)}, runstate.Running, nil); len(failed.Failure) > maxFailure {
		t.Errorf("a failure of %d bytes", len(failed.Failure))
	}
}

// TestAStatusIsOfTheMigrationThatWasBegun: QEMU keeps the status of an earlier migration.
func TestAStatusIsOfTheMigrationThatWasBegun(t *testing.T) {
	objects := map[string]bool{machine.IncomingMarker("m1"): true, machine.RanMarker("m1"): true, machine.BegunMarker("m2"): true}
	if m := migrationOf(migrationInfo{Status: "completed"}, runstate.Running, objects); m.Status != migrationstatus.None || m.HasSentGuest() || !m.HasArrived() {
		t.Errorf("of one that has not begun: %+v", m)
	}
	if m := migrationOf(migrationInfo{Status: "completed"}, runstate.PostMigrate, objects); m.Status != migrationstatus.Completed || !m.HasSentGuest() {
		t.Errorf("of one that is complete: %+v", m)
	}
}

// QEMU reports no event for its last steps before the target may run the guest, while the guest is stopped.
func TestASourceThatHandsItsGuestOverIsAskedAtOnce(t *testing.T) {
	of := func(begun types.UID, status migrationstatus.Status, state string, sent float64) knownState {
		m := Migration{RunState: state, Status: status, PostCopyBytes: sent}
		m.Begun = begun
		return knownState{runState: state, migration: m}
	}
	for name, c := range map[string]struct {
		known knownState
		want  time.Duration
	}{
		"all is sent, and the run state follows":       {of("m", migrationstatus.Completed, "finish-migrate", 0), handoverPause},
		"all is sent":                                  {of("m", migrationstatus.Completed, runstate.PostMigrate, 0), 0},
		"the last of it is sent":                       {of("m", migrationstatus.Device, "finish-migrate", 0), transientPause},
		"memory is sent":                               {of("m", migrationstatus.Active, runstate.Running, 0), transientPause},
		"the memory follows, and none was sent":        {of("m", migrationstatus.PostCopyActive, "finish-migrate", 0), handoverPause},
		"the memory follows":                           {of("m", migrationstatus.PostCopyActive, "finish-migrate", 1), transientPause},
		"the memory of a guest that came here follows": {of("", migrationstatus.PostCopyActive, runstate.Running, 0), transientPause},
		"a guest that came here is complete":           {of("", migrationstatus.Completed, "finish-migrate", 0), transientPause},
	} {
		if got := c.known.facts(time.Now()).After; got != c.want {
			t.Errorf("%s: asked after %v, want %v", name, got, c.want)
		}
	}
	objects := map[string]bool{machine.BegunMarker("m"): true}
	if m := migrationOf(migrationInfo{Status: "completed"}, "finish-migrate", objects); m.Status != migrationstatus.Completed || m.HasSentGuest() {
		t.Errorf("one that completes: %+v", m)
	}
}

func TestWhatIsKnownOfAGuest(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	failed := []vmihandler.FailedDisk{{Volume: "root"}}
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
		var m knownState
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
		started, migrates bool
		state             string
		want              bool
	}{
		"a guest that nothing is known of":       {false, false, runstate.Running, true},
		"one that has run":                       {true, false, runstate.Running, false},
		"one that is paused, by whomever":        {true, false, runstate.Paused, true},
		"one that was reset while it was paused": {true, false, runstate.Prelaunch, true},
		"one that has an I/O error":              {true, false, runstate.IOError, true},
		"one that was told to migrate":           {true, true, runstate.Running, true},
		"one that is handed over":                {true, false, "finish-migrate", true},
		"one that has left":                      {true, false, runstate.PostMigrate, true},
	} {
		if got := (knownState{started: c.started, migrates: c.migrates}).markersMatter(c.state); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAGuestThatHasLeftDoesNotGoOnWhateverQEMUSays: an error at the end of a post-copy makes it fail.
func TestAGuestThatHasLeftDoesNotGoOnWhateverQEMUSays(t *testing.T) {
	for _, qemus := range []string{runstate.PostMigrate, "paused"} { // of QEMU 7.2 and 10
		for _, marked := range []bool{false, true} {
			a := migrationOf(migrationInfo{Status: "failed"}, qemus, map[string]bool{
				machine.BegunMarker("m"): true, machine.PausedMarker("m"): true, machine.LeftMarker("m"): marked,
			})
			want := runstate.PausedToMigrate
			if marked {
				want = runstate.PostMigrate
			}
			if got := guestRunState(a); got != want {
				t.Errorf("%s, marked is %v: the guest is %s, want %s", qemus, marked, got, want)
			}
		}
	}
}

func TestWhenAGuestIsMeasured(t *testing.T) {
	here := machine.Handover{Incoming: "m0", Ran: true}
	for name, c := range map[string]struct {
		migration Migration
		want      bool
	}{
		"no migration":                           {Migration{}, true},
		"one that has arrived and runs":          {Migration{Handover: here, Status: migrationstatus.Completed}, true},
		"one that arrives":                       {Migration{Handover: machine.Handover{Incoming: "m0"}, Status: migrationstatus.Active}, false},
		"one that has arrived and may not run":   {Migration{Handover: machine.Handover{Incoming: "m0"}, Status: migrationstatus.Completed}, false},
		"one that runs before its memory":        {Migration{Handover: here, Status: migrationstatus.PostCopyActive}, false},
		"one whose memory is being sent":         {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.Active}, true},
		"one that stands still to be sent":       {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.PreSwitchover}, false},
		"one whose devices are being sent":       {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.Device}, false},
		"one whose memory follows it":            {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.PostCopyActive}, false},
		"one that has left":                      {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.Completed}, false},
		"one that came and has left":             {Migration{Handover: machine.Handover{Incoming: "m0", Ran: true, Begun: "m1"}, Status: migrationstatus.Completed}, false},
		"one whose migration is being canceled":  {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.Canceling}, false},
		"one whose migration has failed":         {Migration{Handover: machine.Handover{Begun: "m1"}, Status: migrationstatus.Failed}, true},
		"one whose QEMU has a status of another": {Migration{Handover: machine.Handover{Begun: "m1"}, Status: "teleporting"}, false},
	} {
		g := &Guest{known: knownState{migration: c.migration}}
		if got := g.Measurable(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		g.stale = true
		if g.Measurable() {
			t.Errorf("%s: it is measured after an event that nobody has looked at", name)
		}
		g.stale, g.silent = false, true
		if g.Measurable() {
			t.Errorf("%s: it is measured although QEMU is silent", name)
		}
		g.silent, g.known.runState = false, runstate.PausedToMigrate
		if g.Measurable() {
			t.Errorf("%s: it is measured while it stands still for its migration", name)
		}
	}
}

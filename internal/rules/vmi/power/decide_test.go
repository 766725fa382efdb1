package power

import (
	"strings"
	"testing"

	"drydock.dev/drydock/internal/qemu/runstate"
)

func TestDecideVerbs(t *testing.T) {
	seen := func(state string, halted, paused bool) Guest {
		return Guest{State: runstate.Of(state), Halted: halted, Paused: paused}
	}
	sent := func(state string) Guest {
		return Guest{State: runstate.Of(state), Migrating: true}
	}
	type want struct{ pause, unpause, reset, resume Action }
	for name, c := range map[string]struct {
		seen Guest
		want want
	}{
		"a guest that runs":                              {seen("running", false, false), want{Stop, Refuse, PushReset, None}},
		"one that its user has paused":                   {seen("paused", false, false), want{Refuse, Proceed, PushReset, None}},
		"one that was reset while it was paused":         {seen("prelaunch", false, false), want{Refuse, Proceed, PushReset, None}},
		"one that waits for volumes":                     {seen("prelaunch", true, false), want{Mark, Refuse, PushReset, None}},
		"one that waits and that its user has paused":    {seen("prelaunch", true, true), want{Refuse, Unmark, PushReset, None}},
		"one that an I/O error has stopped":              {seen("io-error", false, false), want{Stop, Proceed, ResetAndRun, Proceed}},
		"one that its user has paused besides":           {seen("io-error", false, true), want{Stop, Proceed, PushReset, None}},
		"one that has suspended itself":                  {seen("suspended", false, false), want{Refuse, WakeUp, PushReset, None}},
		"one that its watchdog has stopped":              {seen("watchdog", false, false), want{Refuse, Proceed, PushReset, None}},
		"one that arrives from elsewhere":                {seen("inmigrate", false, false), want{Refuse, Refuse, Refuse, None}},
		"one that has moved":                             {seen("postmigrate", false, false), want{Refuse, Refuse, Refuse, None}},
		"one that can't continue":                        {seen("internal-error", false, false), want{Refuse, Refuse, Refuse, None}},
		"one in a state that only a newer QEMU has":      {seen("hibernating", false, false), want{Refuse, Refuse, Refuse, None}},
		"one that runs, with a pause that was left over": {seen("running", false, true), want{Stop, Refuse, PushReset, None}},
		"one that is being sent elsewhere":               {sent("running"), want{Refuse, Refuse, PushReset, None}},
		"one that is stopped for that":                   {sent("finish-migrate"), want{Refuse, Refuse, Refuse, None}},
	} {
		got := want{
			decidePause(c.seen).Action, decideUnpause(c.seen).Action, decideReset(c.seen).Action, DecideResume(c.seen).Action,
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		for _, decide := range []func(Guest) Decision{decidePause, decideUnpause, decideReset} {
			if d := decide(c.seen); (d.Action == Refuse) != (d.Message != "") {
				t.Errorf("%s: a refusal without a reason, or the other way round: %+v", name, d)
			}
		}
	}
}

func TestDecideSend(t *testing.T) {
	for name, c := range map[string]struct {
		seen Guest
		want Action
		why  string
	}{
		"a guest that runs":                  {Guest{State: runstate.Of("running")}, None, ""},
		"one that its user has paused":       {Guest{State: runstate.Of("paused")}, Refuse, "paused by user"},
		"one that waits for volumes":         {Guest{State: runstate.Of("prelaunch"), Halted: true}, Refuse, "waits for volumes"},
		"one that an I/O error has stopped":  {Guest{State: runstate.Of("io-error")}, Refuse, "one of its disks failed"},
		"one that has suspended itself":      {Guest{State: runstate.Of("suspended")}, Refuse, "suspended itself"},
		"one that has not arrived":           {Guest{State: runstate.Of("inmigrate")}, Refuse, "waits for the guest"},
		"one that has left":                  {Guest{State: runstate.Of("postmigrate")}, Refuse, "sent to another QEMU"},
		"one that is being sent":             {Guest{State: runstate.Of("running"), Migrating: true}, Refuse, "already"},
		"one that is held still":             {Guest{State: runstate.Of("running"), Held: true}, Refuse, "snapshotted"},
		"one that is stopped for a snapshot": {Guest{State: runstate.Of(runstate.Held), Held: true}, Refuse, "snapshotted"},
	} {
		got := DecideSend(c.seen)
		if got.Action != c.want || (got.Action == Refuse) != (got.Message != "") || !strings.Contains(got.Message, c.why) {
			t.Errorf("%s: %+v, want %s with %q", name, got, c.want, c.why)
		}
	}
}

func TestDecide(t *testing.T) {
	running := Guest{State: runstate.Of("running")}
	for r, want := range map[Request]Action{Pause: Stop, Unpause: Refuse, Reset: PushReset, Reboot: None, PressKeys: CtrlAltDel} {
		if got := Decide(r, running).Action; got != want {
			t.Errorf("%s: %s, want %s", r, got, want)
		}
	}
}

func TestDecideReboot(t *testing.T) {
	for name, c := range map[string]struct {
		seen Guest
		why  string
	}{
		"a guest that runs":             {Guest{State: runstate.Of("running")}, ""},
		"one that its user has paused":  {Guest{State: runstate.Of("paused")}, "VMI is paused"},
		"one that waits for volumes":    {Guest{State: runstate.Of("prelaunch"), Halted: true}, "VMI cannot be rebooted: it waits for volumes before it starts"},
		"one that has suspended itself": {Guest{State: runstate.Of("suspended")}, "VMI cannot be rebooted: " + runstate.Of("suspended").Message},
	} {
		d := Decide(Reboot, c.seen)
		if keys := Decide(PressKeys, c.seen); (keys.Action == Refuse) != (d.Action == Refuse) || keys.Message != d.Message {
			t.Errorf("%s: pressing keys: %+v, a reboot: %+v", name, keys, d)
		}
		if err := d.Refusal(); d.Message != c.why || (err == nil) != (c.why == "") || err != nil && err.Error() != c.why {
			t.Errorf("%s: %+v, %v, want %q", name, d, err, c.why)
		}
	}
}

// TestAGuestThatIsHeldForASnapshot: it counts as running, but its user can't pause it, because virt-launcher would
// resume it.
func TestAGuestThatIsHeldForASnapshot(t *testing.T) {
	seen := Guest{State: runstate.Of(runstate.Held), Held: true}
	if !seen.State.Ready() || seen.State.Paused || seen.State.Outlook != runstate.Runs || seen.State.Action != runstate.Leave {
		t.Errorf("it is %+v", seen.State)
	}
	for name, d := range map[string]Decision{"pause": decidePause(seen), "a stop that met it": DecideStopped(seen.State)} {
		if d.Action != Refuse || !strings.Contains(d.Message, "snapshotted; try again") {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if d := decideUnpause(seen); d.Action != Refuse {
		t.Errorf("unpause: %+v", d)
	}
	if d := DecideResume(seen); d.Action != None {
		t.Errorf("resume: %+v", d)
	}
	if d := decidePause(Guest{State: runstate.Of("running"), Held: true}); d.Action != Stop {
		t.Errorf("pause of a guest that is frozen: %+v", d)
	}
}

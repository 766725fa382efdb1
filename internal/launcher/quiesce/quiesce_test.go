package quiesce_test

import (
	"errors"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/launcher/quiesce"
)

var begin = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const port = "agent0"

type story struct {
	t   *testing.T
	m   quiesce.Machine
	now time.Time
}

func newStory(t *testing.T) *story { return &story{t: t, now: begin} }

func (s *story) after(d time.Duration) { s.now = s.now.Add(d) }

func (s *story) ask(holder, token string, milliseconds int64, agent bool) quiesce.Verdict {
	return s.m.Ask(launch.Quiesce{Holder: holder, Milliseconds: milliseconds, Agent: agent}, token, s.now)
}

func (s *story) expect(what string, got, want quiesce.Action) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: to do is %q, want %q", what, got, want)
	}
}

func (s *story) take(token string, milliseconds int64, method launch.Method) {
	s.t.Helper()
	const holder = "snap"
	if v := s.ask(holder, token, milliseconds, method == launch.MethodAgent); v != (quiesce.Verdict{Action: quiesce.Take, Wait: true}) {
		s.t.Fatalf("asking: %+v", v)
	}
	s.expect("taken", s.m.Taken(method, time.Time{}, nil, s.now), quiesce.Nothing)
	if h := s.m.Hold(s.now); !h.Lasts() || h.Token != token || h.Holder != holder || h.Method != method {
		s.t.Fatalf("held: %+v", h)
	}
}

func (s *story) ended(why string, timedOut bool, milliseconds int64) {
	s.t.Helper()
	want := launch.Hold{Token: "t1", Holder: "snap", Method: s.m.Hold(s.now).Method, Ended: why, TimedOut: timedOut, Milliseconds: milliseconds}
	if h := s.m.Hold(s.now); h != want || h.Lasts() {
		s.t.Errorf("the hold has ended with %+v, want %+v", h, want)
	}
}

// TestAGuestIsHeldSinceItStoodStill and not since the request: its agent is first asked whether it is there.
func TestAGuestIsHeldSinceItStoodStill(t *testing.T) {
	s := newStory(t)
	s.ask("snap", "t1", 5000, true)
	s.after(400 * time.Millisecond)
	s.expect("taken", s.m.Taken(launch.MethodAgent, s.now.Add(-100*time.Millisecond), nil, s.now), quiesce.Nothing)
	s.after(time.Second)
	if got := s.m.Hold(s.now).Milliseconds; got != 1100 {
		t.Errorf("the guest is held for %d ms", got)
	}
	if want := begin.Add(5 * time.Second); !s.m.Until().Equal(want) {
		t.Errorf("the hold ends at %v, want %v", s.m.Until(), want)
	}
	s.m.Release(launch.Release{Holder: "snap"}, s.now)
	s.ended("it was released", false, 1100)
}

func TestAHold(t *testing.T) {
	s := newStory(t)
	s.take("t1", 5000, launch.MethodStop)
	s.after(time.Second)
	if h := s.m.Hold(s.now); h.Milliseconds != 1000 {
		t.Errorf("after a second: %+v", h)
	}
	if v := s.ask("snap", "t2", 5000, false); v != (quiesce.Verdict{}) {
		t.Errorf("the same holder: %+v", v)
	}
	if v := s.ask(launch.HolderUser, "t2", 5000, false); v.Refused != `the guest is held still for the snapshot "snap"` {
		t.Errorf("another holder: %+v", v)
	}
	for _, r := range []launch.Release{{Holder: "other"}, {Holder: "snap", Token: "t2"}, {Holder: "other", Token: "t1"}} {
		if action, was := s.m.Release(r, s.now); was || action != quiesce.Nothing {
			t.Errorf("%+v has released the guest", r)
		}
	}
	action, was := s.m.Release(launch.Release{Holder: "snap", Token: "t1"}, s.now)
	s.expect("released", action, quiesce.LetGo)
	if !was {
		t.Error("the release was of nothing")
	}
	s.ended("it was released", false, 1000)
	if action, was := s.m.Release(launch.Release{Holder: "snap"}, s.now); was || action != quiesce.Nothing {
		t.Error("released twice")
	}
	if v := s.ask("snap", "t2", 5000, false); v.Refused == "" || v.Wait || v.Action != quiesce.Nothing {
		t.Errorf("while the guest is being let go: %+v", v)
	}
	s.m.Free()
	s.after(time.Minute)
	s.ended("it was released", false, 1000)
	s.take("t2", 5000, launch.MethodStop)
	s.m.Free()
	if !s.m.Hold(s.now).Lasts() {
		t.Error("a hold that lasts was freed")
	}
}

func TestDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		milliseconds int64
		method       launch.Method
		want         time.Duration
	}{
		"as asked for":                  {5000, launch.MethodAgent, 5 * time.Second},
		"no less than a second":         {-1, launch.MethodAgent, time.Second},
		"an hour at most":               {1 << 62, launch.MethodAgent, time.Hour},
		"stopped, as asked for":         {5000, launch.MethodStop, 5 * time.Second},
		"stopped, half a minute":        {300000, launch.MethodStop, 30 * time.Second},
		"paused already, half a minute": {300000, launch.MethodPaused, 30 * time.Second},
	} {
		s := newStory(t)
		s.take("t1", c.milliseconds, c.method)
		if until := s.m.Until(); !until.Equal(begin.Add(c.want)) {
			t.Errorf("%s: until %v", name, until.Sub(begin))
		}
		s.after(c.want - 1)
		s.expect(name+", before", s.m.Tick(s.now), quiesce.Nothing)
		s.after(1)
		s.expect(name, s.m.Tick(s.now), quiesce.LetGo)
		s.ended("it was not released before its deadline", true, c.want.Milliseconds())
		if !s.m.Until().IsZero() {
			t.Errorf("%s: there is another deadline", name)
		}
		s.expect(name+", again", s.m.Tick(s.now), quiesce.Nothing)
	}
}

func TestWhatBreaksAHold(t *testing.T) {
	type event struct{ name, data string }
	for name, c := range map[string]struct {
		method launch.Method
		event  event
		why    string
	}{
		"a stopped guest runs":           {launch.MethodStop, event{"RESUME", ""}, "the guest was told to go on"},
		"a paused guest runs":            {launch.MethodPaused, event{"RESUME", ""}, "the guest was told to go on"},
		"a frozen guest is unpaused":     {launch.MethodAgent, event{"RESUME", ""}, ""},
		"a frozen guest is paused":       {launch.MethodAgent, event{"STOP", ""}, ""},
		"a reset":                        {launch.MethodAgent, event{"RESET", "{}"}, "the guest was reset"},
		"a shutdown":                     {launch.MethodStop, event{"SHUTDOWN", "{}"}, "the guest has shut down"},
		"a migration":                    {launch.MethodAgent, event{"MIGRATION", `{"status":"setup"}`}, "the guest is being migrated"},
		"an earlier migration's end":     {launch.MethodAgent, event{"MIGRATION", `{"status":"completed"}`}, ""},
		"the agent goes":                 {launch.MethodAgent, event{"VSERPORT_CHANGE", `{"id":"agent0","open":false}`}, "the guest agent has gone"},
		"the agent comes":                {launch.MethodAgent, event{"VSERPORT_CHANGE", `{"id":"agent0","open":true}`}, ""},
		"another port closes":            {launch.MethodAgent, event{"VSERPORT_CHANGE", `{"id":"other","open":false}`}, ""},
		"an agent goes that is not used": {launch.MethodStop, event{"VSERPORT_CHANGE", `{"id":"agent0","open":false}`}, ""},
		"something else":                 {launch.MethodStop, event{"RTC_CHANGE", `{"offset":1}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.take("t1", 5000, c.method)
			action := s.m.Event(c.event.name, []byte(c.event.data), port, s.now)
			if c.why == "" {
				s.expect("the event", action, quiesce.Nothing)
				if !s.m.Hold(s.now).Lasts() || s.m.Agent() != (c.method == launch.MethodAgent) {
					t.Error("the hold has ended")
				}
				return
			}
			s.expect("the event", action, quiesce.LetGo)
			s.ended(c.why, false, 0)
		})
		t.Run(name+", before the guest is held", func(t *testing.T) {
			s := newStory(t)
			s.ask("snap", "t1", 5000, c.method == launch.MethodAgent)
			s.expect("the event", s.m.Event(c.event.name, []byte(c.event.data), port, s.now), quiesce.Nothing)
			want := quiesce.Nothing
			if c.why != "" {
				want = quiesce.LetGo
			}
			s.expect("taken", s.m.Taken(c.method, time.Time{}, nil, s.now), want)
			if h := s.m.Hold(s.now); h.Ended != c.why {
				t.Errorf("the hold is %+v", h)
			}
		})
	}
}

func TestAGuestThatIsHeldAfterItHasGoneOn(t *testing.T) {
	s := newStory(t)
	s.ask("snap", "t1", 5000, false)
	s.m.Event("RESUME", nil, port, s.now)
	s.m.Event("STOP", nil, port, s.now)
	s.expect("taken", s.m.Taken(launch.MethodStop, time.Time{}, nil, s.now), quiesce.Nothing)
	s.m.Release(launch.Release{Holder: "snap"}, s.now)
	s.m.Event("RESUME", nil, port, s.now)
	s.m.Free()
	// The guest's earlier resumption must not affect the next hold.
	s.take("t2", 5000, launch.MethodStop)
}

func TestAGuestThatCannotBeHeld(t *testing.T) {
	s := newStory(t)
	s.ask("snap", "t1", 5000, true)
	if h := s.m.Hold(s.now); h != (launch.Hold{}) || s.m.Agent() {
		t.Errorf("before it is held: %+v", h)
	}
	if v := s.ask("snap", "t2", 5000, true); v != (quiesce.Verdict{Wait: true}) {
		t.Errorf("asked again meanwhile: %+v", v)
	}
	s.expect("taken", s.m.Taken(launch.MethodAgent, time.Time{}, errors.New("no agent"), s.now), quiesce.LetGo)
	s.ended("no agent", false, 0)
	s.expect("taken twice", s.m.Taken(launch.MethodAgent, time.Time{}, nil, s.now), quiesce.Nothing)
}

func TestAHoldThatEndsBeforeItBegins(t *testing.T) {
	s := newStory(t)
	s.ask("snap", "t1", 5000, true)
	action, was := s.m.Release(launch.Release{Holder: "snap"}, s.now)
	s.expect("released", action, quiesce.Nothing)
	if !was || !s.m.Until().IsZero() {
		t.Error("it was not released")
	}
	if v := s.ask("snap", "t2", 5000, true); v.Refused == "" {
		t.Errorf("asked again: %+v", v)
	}
	s.expect("taken", s.m.Taken(launch.MethodAgent, time.Time{}, errors.New("no agent"), s.now), quiesce.LetGo)
	s.ended("it was released", false, 0)

	s = newStory(t)
	s.ask("snap", "t1", 5000, true)
	s.after(5 * time.Second)
	s.expect("the deadline", s.m.Tick(s.now), quiesce.Nothing)
	s.expect("taken", s.m.Taken(launch.MethodAgent, time.Time{}, nil, s.now), quiesce.LetGo)
	s.ended("it was not released before its deadline", true, 5000)

	s = newStory(t)
	s.ask("snap", "t1", 5000, true)
	s.after(5 * time.Second)
	s.expect("taken too late", s.m.Taken(launch.MethodAgent, time.Time{}, nil, s.now), quiesce.LetGo)
	s.ended("it was not released before its deadline", true, 5000)
}

func TestNobodyHoldsTheGuest(t *testing.T) {
	s := newStory(t)
	s.expect("the deadline", s.m.Tick(s.now), quiesce.Nothing)
	s.expect("a reset", s.m.Event("RESET", nil, port, s.now), quiesce.Nothing)
	s.expect("taken", s.m.Taken(launch.MethodStop, time.Time{}, nil, s.now), quiesce.Nothing)
	if _, was := s.m.Release(launch.Release{Holder: ""}, s.now); was || s.m.Hold(s.now) != (launch.Hold{}) {
		t.Error("there is a hold")
	}
	if got := quiesce.Whom(launch.HolderUser); got != "a user, who has frozen it" {
		t.Errorf("a user is %q", got)
	}
}

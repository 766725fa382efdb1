package concern

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// stub is a concern with a fixed outcome, which notes its calls.
type stub struct {
	name  string
	next  Next
	calls *[]string
}

func (s *stub) note(call string) { *s.calls = append(*s.calls, call+" "+s.name) }

func (s *stub) HandleEvent(e qmp.Event) bool { return e.Name == s.name }

func (s *stub) Observe(context.Context, Query, Round) (string, error) {
	s.note("observe")
	return "seen " + s.name, errors.New("QEMU is silent")
}

func (s *stub) Decide(_ Round, seen string) Next {
	s.note("decide on " + seen + " in")
	return s.next
}

func (s *stub) Report(Next, *vmihandler.Guest) { s.note("report") }

func (s *stub) Act(context.Context, Monitor, Round, Next) error {
	s.note("act")
	return nil
}

func TestTheFirstConcernInNeedActs(t *testing.T) {
	var calls []string
	l := List{
		New("Links", &stub{name: "links", next: Next{Settled: true, Refusal: ""}, calls: &calls}),
		New("Disks", &stub{name: "disks", next: Next{Due: true, After: time.Minute, Unsettled: true, Refusal: "disks"}, calls: &calls}).ForArrivals(),
		New("CPUs", &stub{name: "cpus", next: Next{Due: true, After: time.Second, Problem: "cpus", Refusal: "cpus"}, calls: &calls}),
	}
	round := func(r Round) Decided {
		calls = nil
		l.Observe(t.Context(), nil, r, logr.Discard())
		d := l.Decide(r)
		if err := l.Act(t.Context(), nil, r, d.Step); err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := Decided{Step: "Disks", After: time.Second, Problem: "cpus", Settled: []vmihandler.Step{"Links"}, Unsettled: true, Refusal: "disks"}
	if diff := cmp.Diff(want, round(Round{})); diff != "" {
		t.Errorf("a guest at home (-want +got):\n%s", diff)
	}
	const all = "observe links, observe disks, observe cpus, decide on seen links in links, decide on seen disks in disks, decide on seen cpus in cpus, act disks"
	if got := strings.Join(calls, ", "); got != all {
		t.Errorf("a guest at home: %s, want %s", got, all)
	}
	want = Decided{Step: "Disks", After: time.Minute, Unsettled: true, Refusal: "disks"}
	if diff := cmp.Diff(want, round(Round{Arrival: &Arrival{}})); diff != "" {
		t.Errorf("a guest that arrives (-want +got):\n%s", diff)
	}
	if want := []string{"observe disks", "decide on seen disks in disks", "act disks"}; !slices.Equal(calls, want) {
		t.Errorf("a guest that arrives: %q, want %q", calls, want)
	}
	if !l.HandleEvent(qmp.Event{Name: "cpus"}) || l.HandleEvent(qmp.Event{Name: "other"}) {
		t.Error("an event is news to another concern than its own")
	}
}

package switchover_test

import (
	"errors"
	"testing"

	"drydock.dev/drydock/internal/exploration"
)

// mostStates bounds the memory of an exploration.
const mostStates = 20_000_000

const (
	ofProcesses = handlerDies | connectionCut | qemuDies | launcherDies
	ofUsers     = podDeleted | podForced | canceled | vmiDeleted
	everything  = ofProcesses | ofUsers | nodeSilent | givenUp
)

// Each scenario is small in one dimension so that it can be large in another.
var scenarios = []scenario{
	{name: "any fault, from the beginning, with late views", large: true, faults: 1, kinds: everything},
	{name: "any two faults", large: true, ready: true, prompt: true, faults: 2, kinds: everything},
	{name: "two faults of processes, with late views", large: true, ready: true, faults: 2, kinds: handlerDies | connectionCut | launcherDies},
	{name: "nothing goes wrong, from the beginning, with late views"},
	{name: "nothing goes wrong, and the guest moves by post-copy", ready: true, postCopy: true},
	{name: "nothing goes wrong, and the guest is stopped until it has moved", ready: true, pause: true},
	{name: "a guest that is stopped until it has moved, and any fault", ready: true, prompt: true, pause: true, faults: 1, kinds: everything | targetDeaf},
	{name: "a target that does not read, virt-handlers and connections fail: the stopped guest is kept", large: true, ready: true, prompt: true, pause: true, keeps: true,
		faults: 2, kinds: handlerDies | connectionCut | canceled | targetDeaf},
	{name: "a target that does not read, and any other fault", large: true, ready: true, prompt: true, faults: 2, kinds: everything | targetDeaf},
	{name: "post-copy, a target that does not read, somebody cancels: the guest is kept", ready: true, postCopy: true, keeps: true, faults: 3, kinds: canceled | givenUp | targetDeaf},
	{name: "virt-handlers and connections fail, somebody cancels: the guest is kept", large: true, ready: true, keeps: true, faults: 2, kinds: handlerDies | connectionCut | canceled | givenUp},
	{name: "disks that move, nothing goes wrong, from the beginning", disks: true, prompt: true},
	{name: "disks that move, and any fault", large: true, ready: true, prompt: true, disks: true, faults: 1, kinds: everything},
	{name: "disks that move, virt-handlers and connections fail: the guest is kept", large: true, ready: true, prompt: true, disks: true, keeps: true,
		faults: 2, kinds: handlerDies | connectionCut | canceled},
	{name: "any fault", ready: true, prompt: true, faults: 1, kinds: everything},
	{name: "post-copy, and any fault", large: true, ready: true, prompt: true, postCopy: true, faults: 1, kinds: everything | targetDeaf},
	{name: "post-copy, connections fail, and the target answers nothing: the guest is kept", ready: true, prompt: true, postCopy: true, keeps: true,
		faults: 3, kinds: connectionCut | targetStuck},
	{name: "post-copy, virt-handlers fail, and the target answers nothing", ready: true, prompt: true, postCopy: true, faults: 3, kinds: handlerDies | targetStuck},
	{name: "an old leader, and a pod that goes or ends", large: true, ready: true, prompt: true, faults: 2, kinds: oldLeader | ofUsers | launcherDies},
	{name: "a QEMU that goes on meanwhile, and any fault", large: true, ready: true, prompt: true, lateAnswers: true, faults: 1, kinds: everything},
	{name: "a QEMU that goes on meanwhile, post-copy, and processes that end", ready: true, prompt: true, lateAnswers: true, postCopy: true, faults: 1, kinds: ofProcesses},
	{name: "post-copy, a connection fails, or somebody cancels: the guest is kept", ready: true, prompt: true, postCopy: true, keeps: true,
		faults: 2, kinds: connectionCut | canceled | givenUp},
	{name: "a second target pod", ready: true, prompt: true, faults: 2, kinds: podForced | secondPod},
}

// longScenarios are added in the long run.
var longScenarios = []scenario{
	{name: "any three faults", ready: true, prompt: true, faults: 3, kinds: everything},
	{name: "disks that move, and any fault, with late views", ready: true, disks: true, faults: 1, kinds: everything},
	{name: "disks that move, and any two faults", ready: true, prompt: true, disks: true, faults: 2, kinds: everything},
	{name: "any two faults, with late views", ready: true, faults: 2, kinds: everything},
	{name: "two faults of processes, from the beginning, with late views", faults: 2, kinds: ofProcesses},
	{name: "post-copy, and any two faults", ready: true, prompt: true, postCopy: true, faults: 2, kinds: everything | targetDeaf},
	{name: "a guest that is stopped until it has moved, and any two faults", ready: true, prompt: true, pause: true, faults: 2, kinds: everything | targetDeaf},
	{name: "a QEMU that goes on meanwhile, post-copy, and any two faults", ready: true, prompt: true, lateAnswers: true, postCopy: true, faults: 2, kinds: everything},
	{name: "virt-handlers and connections fail thrice, somebody cancels: the guest is kept", ready: true, prompt: true, keeps: true, faults: 4, kinds: handlerDies | connectionCut | canceled | givenUp},
	{name: "an old leader, and any other fault", ready: true, prompt: true, faults: 2, kinds: everything | oldLeader},
	{name: "an old leader, and two faults of processes", ready: true, prompt: true, faults: 3, kinds: ofProcesses | oldLeader},
	{name: "a second target pod, and any fault", ready: true, prompt: true, faults: 3, kinds: everything | secondPod},
}

func TestNeverTwoGuestsAndNeverNoneForGood(t *testing.T) {
	exploration.EachScenario(t, scenarios, longScenarios, func(sc scenario) string { return sc.name },
		func(t *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			if sc.large && testing.Short() {
				t.Skip("it has many states")
			}
			sc.rules = drydocks
			return explore(&sc)
		})
}

// Two guests must never run, and every run must come to rest with one guest, or a VMI that has ended.
func explore(sc *scenario) (*exploration.Graph[state, step], error) {
	var first state
	first.initial(sc)
	g, err := exploration.Explore(&exploration.Model[state, step]{
		Initial:  first,
		Next:     sc.next,
		Check:    sc.check,
		Broken:   func(st step) error { return st.broken },
		Progress: func(st step) (uint8, bool) { return 0, !st.disturbs },
		Rest:     sc.rest,
		Name:     func(st step, _ *state) string { return st.name },
		Text:     (*state).String,
		Most:     mostStates,
	})
	if err != nil {
		return g, err
	}
	return g, g.AlwaysRests(errEndless)
}

// check checks each state.
func (sc *scenario) check(s *state) error {
	at := s.tgt == tgtRuns || s.tgt == tgtMarked
	switch {
	case s.canRun() && at:
		return errTwoGuests
	case s.canRun() && s.hasRun, s.stale && at:
		return errOlder
	case !sc.trusting && !s.vmi.Final && s.vmi.Failed && (at || s.vmi.Completed):
		return errTwoEnds
	}
	return nil
}

// rest checks a state in which nothing happens by itself.
func (sc *scenario) rest(s *state) error {
	switch err := settled(s); {
	case err != nil:
		return err
	case sc.keeps && s.vmi.Final:
		return errLost
	case sc.faults == 0 && !s.vmi.Completed:
		return errNotMoved
	}
	return nil
}

func settled(s *state) error {
	r := s.vmi
	ended := s.src == srcEnded && s.tgt == tgtEnded
	switch {
	case r.Final, r.Deleting:
		if ended {
			return nil
		}
	case r.Failed:
		if s.src.runs() && s.tgt == tgtEnded && !r.TargetNamed && !s.copies.left() {
			return nil
		}
	case r.Completed:
		if r.Switched && s.tgt == tgtRuns && s.whole && s.src == srcEnded && !r.SourceNamed {
			return nil
		}
	}
	return errStuck
}

// finds expects a violation of a kind, and shows it.
func finds(t *testing.T, sc *scenario, want error) {
	t.Helper()
	x, err := explore(sc)
	var broken *exploration.Violation
	if !errors.As(err, &broken) {
		t.Fatalf("it survives (%v): %d states, %d transitions", err, x.States(), x.Transitions)
	}
	t.Log(broken)
	if !errors.Is(broken.Broken, want) {
		t.Errorf("it breaks %v, expected %v", broken.Broken, want)
	}
}

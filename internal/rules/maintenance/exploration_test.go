package maintenance

import (
	"errors"
	"testing"

	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

var (
	errTwoHolders = errors.New("M1: two maintenance pods of one VM run")
	errGuest      = errors.New("M2: a maintenance pod and the guest run")
	errStuck      = errors.New("M3: the lock is not released")
	errUnfair     = errors.New("M4: a pod that was made later comes first")
)

// mostStates bounds the memory of an exploration.
const mostStates = 10_000_000

var scenarios = []scenario{
	{name: "two pods, and a start", budget: [budgets]int8{creates: 2, starts: 1}},
	{name: "a pod that is deleted by force, and a start", budget: [budgets]int8{creates: 1, deletes: 1, starts: 2}},
	{name: "two pods, and a forced deletion on a silent node", budget: [budgets]int8{creates: 2, deletes: 1, silences: 1}},
	{name: "a VM that runs is stopped for a pod", always: true, budget: [budgets]int8{creates: 1, starts: 2}},
	{name: "a start past admission", budget: [budgets]int8{creates: 1, startsPast: 1, starts: 1}},
	{name: "a forced unlock on a silent node, and a start", budget: [budgets]int8{creates: 2, silences: 1, forces: 1, starts: 1}},
}

var longScenarios = []scenario{
	{name: "much at once", budget: [budgets]int8{creates: 2, deletes: 2, starts: 2, silences: 1, forces: 1}},
	{name: "much at once past admission", budget: [budgets]int8{creates: 2, deletes: 1, starts: 2, startsPast: 1, silences: 1}},
}

func (sc *scenario) explore() (*exploration.Graph[state, step], error) {
	sc.plans, sc.news, sc.hands = map[leader]Plan{}, map[machineState]bool{}, map[machineState]bool{}
	vm := machineState{always: sc.always, instance: sc.instance}
	g, err := exploration.Explore(&exploration.Model[state, step]{
		Initial: state{vm: vm, cached: vm, budget: sc.budget},
		Next: func(s *state, emit func(step, state)) {
			for _, st := range sc.steps(s) {
				emit(st, st.to)
			}
		},
		Check: (*state).check,
		Broken: func(st step) error {
			if st.unfair {
				return errUnfair
			}
			return nil
		},
		Progress: func(st step) (uint8, bool) { return 0, !st.disturbs },
		Good:     (*state).settled,
		Name:     func(st step, _ *state) string { return st.name },
		Text:     (*state).String,
		Most:     mostStates,
	})
	if err != nil {
		return g, err
	}
	return g, g.AlwaysReaches(errStuck)
}

// check returns the violated invariant.
func (s *state) check() error {
	writes := s.procs[0] == runs || s.procs[1] == runs
	switch {
	case s.procs[0] == runs && s.procs[1] == runs:
		return errTwoHolders
	case writes && s.vmi.guest:
		return errGuest
	case writes && s.plug.handed:
		return errPlugged
	}
	return nil
}

// settled reports whether nobody has the disks, and nobody waits who could have them.
func (s *state) settled() bool {
	if s.vm.holder > 0 || s.plug.wanted && !s.plug.handed {
		return false
	}
	for i, p := range s.pods {
		if p.exists && p.kept && !Waits(p.object(i)) {
			return false
		}
	}
	return true
}

func TestTheLockHolds(t *testing.T) {
	exploration.EachScenario(t, scenarios, longScenarios, func(sc scenario) string { return sc.name },
		func(_ *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			sc.rules = drydocks
			return sc.explore()
		})
}

// seen returns Drydock's rules with a changed view for Decide.
func seen(change func(*Observed)) rules {
	r := drydocks
	r.lock = func(o Observed) Plan {
		change(&o)
		return Decide(o)
	}
	return r
}

// TestWhatIsWrongIsFound replaces each rule by possible errors. The exploration must find each.
func TestWhatIsWrongIsFound(t *testing.T) {
	withoutSecondLook := seen(func(o *Observed) {
		if _, locked := lock.Of(o.Machine); locked {
			o.Look = &Look{PluggedAsked: true}
		}
	})
	withoutOpening := drydocks
	withoutOpening.lock = func(o Observed) Plan {
		p := Decide(o)
		if p.Step == Open {
			p.Step, p.Machine = Lift, nil
		}
		return p
	}
	startLooksAtTheCache := drydocks
	startLooksAtTheCache.startSees = func(s *state) machineState { return s.cached }
	youngestFirst := seen(func(o *Observed) {
		for _, p := range o.Pods {
			if p.Name == podName(1) {
				older(p)
			}
		}
	})
	neverReleased := drydocks
	neverReleased.lock = func(o Observed) Plan {
		p := Decide(o)
		if p.Step == Unlock && p.Event != nil && p.Event.Reason == "MaintenanceEnded" {
			return Plan{}
		}
		return p
	}
	expectFound(t, map[string]mutant{
		"the lock goes when the pod's deletion is requested: a second pod": {deletionIsTheEnd(), scenario{budget: [budgets]int8{creates: 2, deletes: 1, silences: 1}}, errTwoHolders},
		"the lock goes when the pod's deletion is requested: a start":      {deletionIsTheEnd(), scenario{budget: [budgets]int8{creates: 1, deletes: 1, starts: 1}}, errGuest},
		"the start looks at the cache":                                     {startLooksAtTheCache, scenario{always: true, budget: [budgets]int8{creates: 1, starts: 2}}, errGuest},
		"the lock is taken without a second look":                          {withoutSecondLook, scenario{always: true, budget: [budgets]int8{creates: 1, starts: 2}}, errGuest},
		"the gate comes off before the VM is open, and two leaders":        {withoutOpening, scenario{budget: [budgets]int8{creates: 1, starts: 2, startsPast: 1}}, errGuest},
		"the youngest pod comes first":                                     {youngestFirst, scenario{budget: [budgets]int8{creates: 2}}, errUnfair},
		"the lock is not released":                                         {neverReleased, scenario{budget: [budgets]int8{creates: 1}}, errStuck},
	})
}

// mutant is a scenario with a wrong rule, and the invariant that it violates.
type mutant struct {
	rules rules
	sc    scenario
	want  error
}

// expectFound expects the exploration to find each mutant's violation.
func expectFound(t *testing.T, mutants map[string]mutant) {
	t.Helper()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			m.sc.rules = m.rules
			g, err := m.sc.explore()
			var broken *exploration.Violation
			if !errors.As(err, &broken) {
				t.Fatalf("it survives (%v): %d states, %d transitions", err, g.States(), g.Transitions)
			}
			t.Log(broken)
			if !errors.Is(broken.Broken, m.want) {
				t.Errorf("it breaks %v, expected %v", broken.Broken, m.want)
			}
		})
	}
}

// deletionIsTheEnd returns rules that take a terminating pod for ended.
func deletionIsTheEnd() rules {
	return seen(func(o *Observed) {
		for _, p := range append(o.Pods, o.Holder) {
			if p != nil && p.DeletionTimestamp != nil {
				finished(p)
			}
		}
	})
}

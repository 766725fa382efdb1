package switchover_test

import "drydock.dev/drydock/internal/rules/migration/switchover"

// A virt-controller with an old view makes another target pod when the first one's object is gone.
func (t *turn) secondPods() {
	s := t.s
	t.fault(secondPod, "an old virt-controller makes a second target pod", s.second == 0 && s.pods[target].gone, func(to *state) { to.second = 1 })
	if s.second == 0 || !s.handlers[target].up {
		return
	}
	f := switchover.TargetFacts{Record: s.handlers[target].view, Process: []switchover.Process{
		switchover.ProcessNotStarted, switchover.ProcessRuns, switchover.ProcessEnded}[s.second-1]}
	if s.second == 2 {
		f.RunState, f.Unmarked = "inmigrate", true
	}
	if s.second == 3 {
		f.Exit.Known, f.Unmarked = true, true
	}
	d := t.rules.target(f)
	t.targetTells(d.Tell)
	switch d.Action {
	case switchover.StartIncoming:
		t.goesOn("second target: "+string(d.Action), func(to *state) { to.second = 2 })
	case switchover.Kill:
		t.goesOn("second target: "+string(d.Action), func(to *state) { to.second = 3 })
	}
	if s.second < 3 {
		t.may(step{name: "the second target ends", disturbs: true}, func(to *state) { to.second = 3 })
	}
}

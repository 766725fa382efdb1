package oneguestproof

import (
	"errors"

	"drydock.dev/drydock/internal/exploration"
)

// mostStates bounds the memory of an exploration.
const mostStates = 10_000_000

var (
	errTwoGuests = errors.New("G1: two QEMUs of one VM run")
	errStuck     = errors.New("G2: the VM can't come to run, rid of what is left of earlier VMIs")
)

func (sc *scenario) initial() state {
	s := state{budget: sc.budget}
	s.vmi = instance{exists: true, finalizer: true}
	s.made = 1
	s.old.vmi = s.vmi
	if sc.started {
		id := idOf(0, 0)
		s.vmi.phase, s.vmi.ran, s.vmi.pod = phaseRunning, true, id
		s.pods[0] = pod{exists: true, id: id, bound: true, owned: true}
		s.makes[0] = 1
		*s.proc(id) = guest
		s.views[0] = viewOf(s.vmi)
		s.old.vmi, s.old.pods = s.vmi, s.pods
	}
	return s
}

// explore checks G1 in each reachable state, and then G2 on the whole graph.
func explore(sc *scenario) (*exploration.Graph[state, step], error) {
	sc.memo, sc.vmMemo, sc.handlerMemos = map[seen]planned{}, map[instance]vmPlanned{}, map[handlerSeen]handlerPlanned{}
	g, err := exploration.Explore(&exploration.Model[state, step]{
		Initial: sc.initial(),
		Next: func(s *state, emit func(step, state)) {
			for _, st := range sc.steps(s) {
				emit(st, st.to)
			}
		},
		Check: func(s *state) error {
			if s.guests() > 1 {
				return errTwoGuests
			}
			return nil
		},
		Progress: func(st step) (uint8, bool) { return 0, !st.disturbs },
		Good:     (*state).runs,
		Name:     func(st step, _ *state) string { return st.name },
		Text:     (*state).String,
		Most:     mostStates,
	})
	if err != nil {
		return g, err
	}
	return g, g.AlwaysReaches(errStuck)
}

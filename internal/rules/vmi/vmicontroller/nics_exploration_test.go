package vmicontroller

import (
	"errors"
	"fmt"
	"testing"

	"drydock.dev/drydock/internal/exploration"
)

var (
	errOneChangeOneMigration = errors.New("one change of an interface takes more than one migration")
	errGoesOn                = errors.New("an interface that nobody changes is changed for ever")
)

// nicScenarios are explored exhaustively.
var nicScenarios = []nicScenario{
	{name: "nobody attaches to pods that run", changes: 3},
	{name: "nobody attaches, on old views", changes: 2, late: true},
	{name: "somebody attaches to pods that run", attacher: true, changes: 3},
	{name: "somebody attaches, on old views", attacher: true, changes: 2, late: true},
	{name: "somebody attaches, virt-handler dies, a migration fails", attacher: true, changes: 2, deaths: 1, breaks: 1},
	{name: "nobody attaches, virt-handler dies twice, two migrations fail", changes: 2, deaths: 2, breaks: 2},
	{name: "Multus attaches nothing to new pods", blind: true, changes: 2, late: true},
	{name: "the guest releases nothing", keeps: true, changes: 3},
	{name: "the guest releases nothing, and somebody attaches", keeps: true, attacher: true, changes: 3},
}

// TestAnInterfaceIsWhereItIsAskedFor lets users change the template, and all parts act in any order, with old views,
// die and fail. It follows each run to its end.
func TestAnInterfaceIsWhereItIsAskedFor(t *testing.T) {
	exploration.EachScenario(t, nicScenarios, nil, func(sc nicScenario) string { return sc.name },
		func(t *testing.T, sc nicScenario) (*exploration.Graph[nicState, nicStep], error) {
			sc.decided = map[nicView]nicDecision{}
			g, err := exploration.Explore(&exploration.Model[nicState, nicStep]{
				Initial: nicState{changes: sc.changes, deaths: sc.deaths, breaks: sc.breaks, handler: handlerState{unsure: true}},
				Next: func(s *nicState, emit func(nicStep, nicState)) {
					for _, st := range sc.steps(*s) {
						emit(st, st.to)
					}
				},
				Check:    sc.check,
				Progress: func(st nicStep) (uint8, bool) { return 0, !st.disturbs },
				Rest:     sc.rest,
				Name:     func(st nicStep, _ *nicState) string { return st.name },
				Text:     (*nicState).String,
				Most:     5_000_000,
			})
			if err != nil {
				return g, err
			}
			return g, g.AlwaysRests(errGoesOn)
		})
}

// check checks each state.
func (sc *nicScenario) check(s *nicState) error {
	if s.migrations > 1 {
		return errOneChangeOneMigration
	}
	return nil
}

// rest checks a state in which all parts have finished.
func (sc *nicScenario) rest(s *nicState) error {
	wants := s.template.wanted()
	switch {
	case s.migration != atRest:
		return errors.New("a migration does not end")
	case s.vmi.spec != carried(s.vmi, s.template):
		return errors.New("the VMI does not have what its template asks for")
	case s.vmi.reported != s.nic:
		return errors.New("the status is not what QEMU has")
	case sc.blind:
		// virt-handler does not know it, and virt-controller reports that nothing can bring it.
		return nil
	case sc.keeps && s.nic && !wants:
		if s.vmi.condition == isRequired {
			return errors.New("a migration is required of a guest that keeps an interface")
		}
		return nil
	}
	return s.settled(wants)
}

// settled checks the interface in the guest and in its pod.
func (s *nicState) settled(wants bool) error {
	switch {
	case s.vmi.condition != notRequired:
		return errors.New("there is nothing to be done, and the condition MigrationRequired says otherwise")
	case wants != s.nic:
		return fmt.Errorf("the guest has the interface: %v, and is to: %v", s.nic, wants)
	case wants && (s.on != s.template.on || s.pod.in != s.template.on):
		return fmt.Errorf("the guest is on %q, its pod on %q, and both are to be on %q", s.on, s.pod.in, s.template.on)
	case !wants && s.pod.in != nowhere:
		return fmt.Errorf("the pod is on %q, and is to be nowhere", s.pod.in)
	case s.handler.gone:
		return errors.New("something is left of an interface that is gone")
	}
	return nil
}

package oneguest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
)

// mostStates bounds the memory that an exploration takes.
const mostStates = 10_000_000

// exploration is all that was reached in a scenario, breadth first, so that the
// first violation found has the shortest trace.
type exploration struct {
	*scenario
	seed    maphash.Seed
	ids     map[uint64]int32
	hashes  []uint64
	parents []int32
	// good are the states in which the VM runs; sources are, for each state, those
	// from which a step that is no disturbance leads to it.
	good        []bool
	sources     [][]int32
	transitions int
}

// violation is a broken invariant and the way there.
type violation struct {
	broken error
	trace  []string
}

func (v *violation) Error() string {
	return fmt.Sprintf("%v, after %d steps:\n  %s", v.broken, len(v.trace)-1, strings.Join(v.trace, "\n  "))
}

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

// explore visits every state that can be reached, and checks G1 in each of them,
// then G2 on the whole.
func explore(sc *scenario) (*exploration, error) {
	sc.memo, sc.vmMemo, sc.handlerMemos = map[seen]planned{}, map[instance]vmPlanned{}, map[handlerSeen]handlerPlanned{}
	x := &exploration{scenario: sc, seed: maphash.MakeSeed(), ids: map[uint64]int32{}}
	first := sc.initial()
	x.number(&first, -1)
	frontier := []state{first}
	for id := int32(0); len(frontier) > 0; {
		var reached []state
		for i := range frontier {
			more, err := x.expand(id, &frontier[i])
			if err != nil {
				return x, err
			}
			reached = append(reached, more...)
			id++
		}
		frontier = reached
		if len(x.hashes) > mostStates {
			return x, fmt.Errorf("more than %d states: choose a smaller bound", mostStates)
		}
	}
	return x, x.checkProgress()
}

// expand checks a state, takes all its steps and gives the states not seen before.
func (x *exploration) expand(id int32, s *state) ([]state, error) {
	if s.guests() > 1 {
		return nil, x.violation(id, errTwoGuests)
	}
	x.good[id] = s.runs()
	var reached []state
	for _, st := range x.steps(s) {
		known := len(x.hashes)
		target := x.number(&st.to, id)
		if int(target) == known {
			reached = append(reached, st.to)
		}
		x.transitions++
		if !st.disturbs {
			x.sources[target] = append(x.sources[target], id)
		}
	}
	return reached, nil
}

func (x *exploration) number(s *state, parent int32) int32 {
	hash := maphash.Comparable(x.seed, *s)
	if id, ok := x.ids[hash]; ok {
		return id
	}
	id := int32(len(x.hashes))
	x.ids[hash] = id
	x.hashes = append(x.hashes, hash)
	x.parents = append(x.parents, parent)
	x.good = append(x.good, false)
	x.sources = append(x.sources, nil)
	return id
}

// checkProgress is G2: it goes back from the good states along the steps that
// happen by themselves.
func (x *exploration) checkProgress() error {
	var frontier []int32
	saved := make([]bool, len(x.hashes))
	for id, good := range x.good {
		if good {
			saved[id] = true
			frontier = append(frontier, int32(id))
		}
	}
	for len(frontier) > 0 {
		id := frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		for _, source := range x.sources[id] {
			if !saved[source] {
				saved[source] = true
				frontier = append(frontier, source)
			}
		}
	}
	for id := range saved {
		if !saved[id] {
			return x.violation(int32(id), errStuck)
		}
	}
	return nil
}

// violation finds the way to a state by walking it again.
func (x *exploration) violation(id int32, broken error) error {
	var way []int32
	for at := id; at >= 0; at = x.parents[at] {
		way = append([]int32{at}, way...)
	}
	at := x.initial()
	trace := []string{fmt.Sprintf("%-52s %s", "at first", &at)}
	for _, id := range way[1:] {
		for _, st := range x.steps(&at) {
			if maphash.Comparable(x.seed, st.to) == x.hashes[id] {
				trace = append(trace, fmt.Sprintf("%-52s %s", st.name, &st.to))
				at = st.to
				break
			}
		}
	}
	return &violation{broken: broken, trace: trace}
}

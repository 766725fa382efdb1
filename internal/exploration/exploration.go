// Package exploration visits every reachable state of a model, and reports the shortest path to a state that violates an
// invariant. Only tests link it.
//
// A model has the real decision functions of Drydock's components, and everything else that takes part (kubelets, caches,
// users, failures). The package owns the search, the traces, the questions about progress and the run through a model's
// scenarios. It must know nothing about any model.
package exploration

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Model has states S and steps T. States are compared by equality, so they have no pointers.
type Model[S comparable, T any] struct {
	Initial S
	// Next emits each possible step and the state it leads to.
	Next func(s *S, emit func(T, S))
	// Check returns the invariant that a state violates.
	Check func(s *S) error
	// Broken, which may be nil, returns the invariant that a step violates, whatever state it leads to.
	Broken func(T) error
	// Progress reports whether a step happens sooner or later by itself, unlike users' actions and failures. kind
	// distinguishes the steps for AlwaysRests.
	Progress func(T) (kind uint8, progress bool)
	// Rest, which may be nil, returns the error about a state that no progress leaves.
	Rest func(s *S) error
	// Good reports whether AlwaysReaches looks for a state.
	Good func(s *S) bool
	// Name describes a step in a state, Text a state.
	Name func(step T, from *S) string
	Text func(s *S) string
	// Most bounds the states, each of about 200 bytes.
	Most int
}

// Violation is a violated invariant, with the shortest path.
type Violation struct {
	Broken error
	// Trace has one line for each step.
	Trace []string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v, after %d steps:\n  %s", v.Broken, len(v.Trace)-1, strings.Join(v.Trace, "\n  "))
}

func (v *Violation) Unwrap() error { return v.Broken }

// Graph has everything that was reached. States are numbered breadth first: the first one with a violation has the
// shortest trace.
type Graph[S comparable, T any] struct {
	// Transitions counts the steps, disturbances included.
	Transitions int

	model   *Model[S, T]
	seed    maphash.Seed
	ids     map[uint64]int32
	hashes  []uint64
	parents []int32
	good    []bool
	// The steps of progress out of state i are targets[offsets[i]:offsets[i+1]].
	offsets []int
	targets []int32
	kinds   []uint8
	// unrest is the first state at which the model rests and must not, or -1.
	unrest      int32
	unrestCause error
}

// Explore visits and checks every reachable state. The error is a *Violation, or for more states than the model allows.
// The graph then has the states reached before.
func Explore[S comparable, T any](m *Model[S, T]) (*Graph[S, T], error) {
	g := &Graph[S, T]{model: m, seed: maphash.MakeSeed(), ids: map[uint64]int32{}, unrest: -1}
	g.number(&m.Initial, -1)
	frontier := []S{m.Initial}
	for id := int32(0); len(frontier) > 0; {
		var reached []S
		for i := range frontier {
			more, err := g.expand(id, &frontier[i])
			if err != nil {
				return g, err
			}
			reached = append(reached, more...)
			id++
		}
		frontier = reached
		if len(g.hashes) > m.Most {
			return g, fmt.Errorf("more than %d states: choose a smaller bound", m.Most)
		}
	}
	g.offsets = append(g.offsets, len(g.targets))
	return g, nil
}

// States returns the number of states.
func (g *Graph[S, T]) States() int { return len(g.hashes) }

// expand takes all steps from a state and returns the states not seen before.
func (g *Graph[S, T]) expand(id int32, s *S) ([]S, error) {
	if err := g.model.Check(s); err != nil {
		return nil, g.violation(id, err)
	}
	if g.model.Good != nil {
		g.good = append(g.good, g.model.Good(s))
	}
	g.offsets = append(g.offsets, len(g.targets))
	var reached []S
	var broken error
	g.model.Next(s, func(step T, to S) {
		if g.model.Broken != nil && broken == nil {
			broken = g.model.Broken(step)
		}
		if broken != nil {
			return
		}
		known := len(g.hashes)
		target := g.number(&to, id)
		if int(target) == known {
			reached = append(reached, to)
		}
		g.Transitions++
		if kind, progress := g.model.Progress(step); progress && target != id {
			g.targets = append(g.targets, target)
			g.kinds = append(g.kinds, kind)
		}
	})
	if broken != nil {
		return nil, g.violation(id, broken)
	}
	if g.model.Rest != nil && g.unrest < 0 && len(g.targets) == g.offsets[id] {
		if err := g.model.Rest(s); err != nil {
			g.unrest, g.unrestCause = id, err
		}
	}
	return reached, nil
}

// number returns a state's number, which it assigns if the state is new.
func (g *Graph[S, T]) number(s *S, parent int32) int32 {
	hash := maphash.Comparable(g.seed, *s)
	if id, ok := g.ids[hash]; ok {
		return id
	}
	id := int32(len(g.hashes))
	g.ids[hash] = id
	g.hashes = append(g.hashes, hash)
	g.parents = append(g.parents, parent)
	return id
}

// violation finds the path to a state, and on from it, by repeating the steps: only the hashes of states are stored.
func (g *Graph[S, T]) violation(id int32, broken error, on ...int32) error {
	var way []int32
	for at := id; at >= 0; at = g.parents[at] {
		way = append([]int32{at}, way...)
	}
	way = append(way, on...)
	at := g.model.Initial
	trace := []string{g.line("at first", &at)}
	for _, id := range way[1:] {
		from, found := at, false
		g.model.Next(&from, func(step T, to S) {
			if !found && maphash.Comparable(g.seed, to) == g.hashes[id] {
				trace = append(trace, g.line(g.model.Name(step, &from), &to))
				at, found = to, true
			}
		})
	}
	return &Violation{Broken: broken, Trace: trace}
}

func (g *Graph[S, T]) line(name string, s *S) string {
	return fmt.Sprintf("%-52s %s", name, g.model.Text(s))
}

// Package exploration visits every state that a model can reach, and shows the shortest
// way to a state that breaks what must hold.
//
// A model is made of the real decision functions of Drydock's parts, and of whatever
// else takes part (kubelets, caches, users, failures). This package owns the search, the
// traces, the questions about progress and the run through a model's scenarios; it knows
// nothing about any model. Only tests are built with it.
package exploration

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Model is what is explored: S is a state, T a step. A state must have no pointers, since
// states are the same when they are equal.
type Model[S comparable, T any] struct {
	Initial S
	// Next emits each step that can happen in a state, and where it leads.
	Next func(s *S, emit func(T, S))
	// Check returns what a state breaks.
	Check func(s *S) error
	// Broken returns what a step breaks, whatever state it leads to; nil without such steps.
	Broken func(T) error
	// Progress reports whether a step happens sooner or later by itself. What users do,
	// and failures, need not happen. Kind distinguishes the steps for AlwaysRests.
	Progress func(T) (kind uint8, progress bool)
	// Rest returns what is wrong with a state that no progress leads out of; nil if
	// nothing is expected of such states.
	Rest func(s *S) error
	// Good reports whether a state is one that AlwaysReaches asks for; nil without.
	Good func(s *S) bool
	// Name describes a step that is taken in a state, Text a state.
	Name func(step T, from *S) string
	Text func(s *S) string
	// Most bounds the number of states, of which each takes about 200 bytes of memory.
	Most int
}

// Violation is what is broken, and the shortest way there.
type Violation struct {
	Broken error
	// Trace has one line for each step.
	Trace []string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v, after %d steps:\n  %s", v.Broken, len(v.Trace)-1, strings.Join(v.Trace, "\n  "))
}

func (v *Violation) Unwrap() error { return v.Broken }

// Graph is all that was reached. States are numbered in the order of their discovery,
// breadth first: the first one that breaks something has the shortest trace.
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
	// unrest is the first state that must not be one of rest, -1 without.
	unrest      int32
	unrestCause error
}

// Explore visits every state that can be reached, and checks each. The error is a
// *Violation, or says that there are more states than the model allows; the graph is then
// what was reached before.
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

// States is how many states were reached.
func (g *Graph[S, T]) States() int { return len(g.hashes) }

// expand checks a state, takes all its steps and gives the states not seen before.
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

// number gives a state its number.
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

// violation finds the way to a state, and on from it, by taking the steps again: only
// the hashes of states are kept.
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

package exploration

import "slices"

// AlwaysReaches returns a *Violation of want for a state from which progress alone leads to no good one.
func (g *Graph[S, T]) AlwaysReaches(want error) error {
	sources := make([][]int32, len(g.hashes))
	for id := range g.hashes {
		for _, target := range g.targets[g.offsets[id]:g.offsets[id+1]] {
			sources[target] = append(sources[target], int32(id))
		}
	}
	saved := slices.Clone(g.good)
	var frontier []int32
	for id, good := range g.good {
		if good {
			frontier = append(frontier, int32(id))
		}
	}
	for len(frontier) > 0 {
		id := frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		for _, source := range sources[id] {
			if !saved[source] {
				saved[source] = true
				frontier = append(frontier, source)
			}
		}
	}
	if id := slices.Index(saved, false); id >= 0 {
		return g.violation(int32(id), want)
	}
	return nil
}

// AlwaysRests returns a *Violation if a run without disturbances comes to a rest to which the model objects, or, of want,
// if a run can go on forever. Steps of the kinds in fair happen sooner or later while they remain possible.
func (g *Graph[S, T]) AlwaysRests(want error, fair ...uint8) error {
	if g.unrest >= 0 {
		return g.violation(g.unrest, g.unrestCause)
	}
	components := g.components()
	for _, members := range rounds(components) {
		if !g.unfair(members, components, fair) {
			return g.violation(members[0], want, g.round(members[0], components)...)
		}
	}
	return nil
}

// rounds returns the states of each component in which a run can cycle, that of the first state first.
func rounds(components []int32) [][]int32 {
	members := map[int32][]int32{}
	for id, c := range components {
		members[c] = append(members[c], int32(id))
	}
	var out [][]int32
	for _, m := range members {
		if len(m) > 1 {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b []int32) int { return int(a[0] - b[0]) })
	return out
}

// unfair reports whether cycling in a component omits a fair step that is possible in each of its states and would
// always leave it.
func (g *Graph[S, T]) unfair(members, components []int32, fair []uint8) bool {
	starved := map[uint8]bool{}
	for _, kind := range fair {
		starved[kind] = true
	}
	for _, id := range members {
		possible := map[uint8]bool{}
		for i := g.offsets[id]; i < g.offsets[id+1]; i++ {
			possible[g.kinds[i]] = true
			if components[g.targets[i]] == components[id] {
				starved[g.kinds[i]] = false
			}
		}
		for kind := range starved {
			starved[kind] = starved[kind] && possible[kind]
		}
	}
	for _, s := range starved {
		if s {
			return true
		}
	}
	return false
}

// round returns a path from a state back to itself within its component.
func (g *Graph[S, T]) round(id int32, components []int32) []int32 {
	from := map[int32]int32{}
	queue := []int32{id}
	for found := false; !found; {
		at := queue[0]
		queue = queue[1:]
		for _, target := range g.targets[g.offsets[at]:g.offsets[at+1]] {
			if _, seen := from[target]; !seen && components[target] == components[id] {
				from[target] = at
				queue = append(queue, target)
				found = found || target == id
			}
		}
	}
	way := []int32{id}
	for at := from[id]; at != id; at = from[at] {
		way = append([]int32{at}, way...)
	}
	return way
}

// tarjan finds strongly connected components without recursion, since a run may be longer than the stack allows.
type tarjan struct {
	// order is when a state was visited, 0 if not yet. low is the earliest visit to which it leads back.
	order, low []int32
	// component is the number of a state's component, -1 while it is unknown.
	component []int32
	stack     []int32
	calls     []call
	visited   int32
	found     int32
}

// call is an unfinished visit. at is its next step.
type call struct {
	id int32
	at int
}

// components returns the number of each state's strongly connected component.
func (g *Graph[S, T]) components() []int32 {
	n := len(g.hashes)
	t := &tarjan{order: make([]int32, n), low: make([]int32, n), component: slices.Repeat([]int32{-1}, n)}
	for root := range int32(n) {
		if t.order[root] != 0 {
			continue
		}
		t.visit(root, g.offsets[root])
		for len(t.calls) > 0 {
			top := &t.calls[len(t.calls)-1]
			if top.at == g.offsets[top.id+1] {
				t.leave()
				continue
			}
			target := g.targets[top.at]
			top.at++
			if t.order[target] == 0 {
				t.visit(target, g.offsets[target])
			} else if t.component[target] < 0 {
				t.low[top.id] = min(t.low[top.id], t.order[target])
			}
		}
	}
	return t.component
}

func (t *tarjan) visit(id int32, first int) {
	t.visited++
	t.order[id], t.low[id] = t.visited, t.visited
	t.stack = append(t.stack, id)
	t.calls = append(t.calls, call{id: id, at: first})
}

// leave ends the last visit. The stack from its state on is a component if it leads back to nothing earlier.
func (t *tarjan) leave() {
	id := t.calls[len(t.calls)-1].id
	t.calls = t.calls[:len(t.calls)-1]
	if len(t.calls) > 0 {
		caller := t.calls[len(t.calls)-1].id
		t.low[caller] = min(t.low[caller], t.low[id])
	}
	if t.low[id] != t.order[id] {
		return
	}
	for last := int32(-1); last != id; {
		last = t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		t.component[last] = t.found
	}
	t.found++
}

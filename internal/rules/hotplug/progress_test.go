package hotplug_test

import "errors"

// checkProgress is H3 and H4. Without disturbances every run must come to rest
// and rest must be good. It is enough that no run goes round for ever: a round
// is a strongly connected component of more than one state (steps that change
// nothing are left out) from which no fair run escapes being taken out.
func (x *exploration) checkProgress() error {
	for id, err := range x.unrest {
		first := id
		for other := range x.unrest {
			first = min(first, other)
		}
		if first == id {
			return x.violation(id, err)
		}
	}
	components := x.components()
	for _, members := range rounds(components) {
		if !x.unfair(members, components) {
			return x.roundTrip(members[0], components)
		}
	}
	return nil
}

// rounds are the states of each component that has more than one.
func rounds(components []int32) map[int32][]int32 {
	size := make([]int32, len(components))
	for _, c := range components {
		size[c]++
	}
	members := map[int32][]int32{}
	for id, c := range components {
		if size[c] > 1 {
			members[c] = append(members[c], int32(id))
		}
	}
	return members
}

// fair are the steps that happen sooner or later when they remain possible:
// what does not depend on what the controller makes of its observations.
var fair = []kind{kubeletStarts, kubeletRemoves, deletionArrives, vmiCacheMoves, podCacheMoves,
	handlerPlugs, handlerForces, handlerClears, guestReleases, handlerSaysAttached, handlerSaysMounted, handlerSaysReady, handlerSaysDetaching,
	handlerSaysUnmounted, handlerHandsOver}

// unfair reports whether going round in the component for ever keeps something
// from happening that is possible in each of its states, and would lead out
// each time.
func (x *exploration) unfair(members, components []int32) bool {
	starved := map[kind]bool{}
	for _, k := range fair {
		starved[k] = true
	}
	for _, id := range members {
		possible := map[kind]bool{}
		for i := x.offsets[id]; i < x.offsets[id+1]; i++ {
			possible[x.kinds[i]] = true
			if components[x.targets[i]] == components[id] {
				starved[x.kinds[i]] = false
			}
		}
		for k := range starved {
			starved[k] = starved[k] && possible[k]
		}
	}
	for _, s := range starved {
		if s {
			return true
		}
	}
	return false
}

// components numbers the strongly connected components (Tarjan's algorithm,
// without recursion).
func (x *exploration) components() []int32 {
	n := len(x.hashes)
	order := make([]int32, n) // 0: not visited
	low := make([]int32, n)
	component := make([]int32, n)
	for i := range component {
		component[i] = -1
	}
	type frame struct {
		id int32
		at int
	}
	var stack []int32
	var calls []frame
	counter, found := int32(0), int32(0)
	visit := func(id int32) {
		counter++
		order[id], low[id] = counter, counter
		stack = append(stack, id)
		calls = append(calls, frame{id: id, at: x.offsets[id]})
	}
	for root := range n {
		if order[root] != 0 {
			continue
		}
		visit(int32(root))
		for len(calls) > 0 {
			top := &calls[len(calls)-1]
			if top.at < x.offsets[top.id+1] {
				target := x.targets[top.at]
				top.at++
				if order[target] == 0 {
					visit(target)
				} else if component[target] < 0 {
					low[top.id] = min(low[top.id], order[target])
				}
				continue
			}
			id := top.id
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				caller := calls[len(calls)-1].id
				low[caller] = min(low[caller], low[id])
			}
			if low[id] != order[id] {
				continue
			}
			for {
				last := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				component[last] = found
				if last == id {
					break
				}
			}
			found++
		}
	}
	return component
}

// roundTrip returns how to come to a state and how to come back to it.
func (x *exploration) roundTrip(id int32, components []int32) error {
	from := map[int32]int32{}
	queue := []int32{id}
	for found := false; !found; {
		at := queue[0]
		queue = queue[1:]
		for i := x.offsets[at]; i < x.offsets[at+1]; i++ {
			target := x.targets[i]
			if _, seen := from[target]; !seen && components[target] == components[id] {
				from[target] = at
				queue = append(queue, target)
				found = found || target == id
			}
		}
	}
	round := []int32{id}
	for at := from[id]; at != id; at = from[at] {
		round = append([]int32{at}, round...)
	}
	return x.violation(id, errors.New("H3, H4: the last steps can be repeated for ever"), round...)
}

package main

// identity tells a process from a later one of the same number.
type identity struct {
	pid     int
	started uint64 // ticks since the machine was started
}

// process is what /proc says of a process.
type process struct {
	identity
	parent int
	use    use
	// own is the CPU time of the process and children that of the children it has waited for, with theirs: seconds.
	own, children float64
}

// account adds up CPU time from what is seen of all processes again and again.
//
// The last second of a process is not seen. Its parent has it: what the parent's children used, less what was seen of
// those that have ended, counts for the parent, unless it is a compiler's or a test's, which say who they are.
type account struct {
	last map[identity]process
}

// observe returns what was used since the last call, by use, in seconds. The first call only begins.
func (a *account) observe(now []process) map[use]float64 {
	current, byPID := make(map[identity]process, len(now)), make(map[int]process, len(now))
	for _, p := range now {
		current[p.identity], byPID[p.pid] = p, p
	}
	used := map[use]float64{}
	if a.last != nil {
		ended := a.ended(current, byPID)
		for id, p := range current {
			before := a.last[id]
			used[p.use] += p.own - before.own
			used[p.use] += max(0, p.children-before.children-ended[id])
		}
	}
	a.last = current
	return used
}

// ended returns what was seen of the processes that have ended since the last call, by who has waited for them: the
// nearest of their ancestors that runs.
func (a *account) ended(current map[identity]process, byPID map[int]process) map[identity]float64 {
	before := make(map[int]process, len(a.last))
	for _, p := range a.last {
		before[p.pid] = p
	}
	sums := map[identity]float64{}
	for id, p := range a.last {
		if _, runs := current[id]; runs {
			continue
		}
		parent := p.parent
		for generations := 0; byPID[parent].pid == 0 && before[parent].pid != 0 && generations < len(before); generations++ {
			parent = before[parent].parent
		}
		sums[byPID[parent].identity] += p.own + p.children
	}
	return sums
}

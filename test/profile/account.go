package main

// identity distinguishes a process from a later one with the same PID.
type identity struct {
	pid     int
	started uint64 // in ticks since boot
}

type process struct {
	identity
	parent int
	use    use
	// own excludes reaped children, children includes their descendants, both in seconds.
	own, children float64
}

// account sums CPU time over repeated observations of all processes.
//
// The last second of a process is not observed, but its parent's counter includes it. The increase of the parent's
// children time, minus the observed time of the ended children, counts for the parent, unless the parent is a
// compiler or a test, which have their own use.
type account struct {
	last map[identity]process
}

// The first call only starts.
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

// ended returns the observed CPU time of processes that have ended since the last call, by the process that has
// reaped them: the nearest living ancestor.
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

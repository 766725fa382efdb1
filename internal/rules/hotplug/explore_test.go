package hotplug_test

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"drydock.dev/drydock/internal/rules/hotplug/invariant"
)

// mostStates bounds the memory that an exploration takes (about 200 bytes for
// a state).
const mostStates = 20_000_000

// exploration is all that was reached in a scenario, breadth first, so that
// the first violation found has the shortest trace.
type exploration struct {
	*scenario
	seed    maphash.Seed
	ids     map[uint64]int32
	hashes  []uint64
	parents []int32
	// The steps that are no disturbance: those of state i are
	// targets[offsets[i]:offsets[i+1]].
	offsets     []int
	targets     []int32
	kinds       []kind
	transitions int
	// resting are the states in which nothing goes on by itself, with what is
	// wrong with resting there.
	unrest map[int32]error
}

// violation is a broken invariant and the way there.
type violation struct {
	broken error
	trace  []string
}

func (v *violation) Error() string {
	return fmt.Sprintf("%v, after %d steps:\n  %s", v.broken, len(v.trace)-1, strings.Join(v.trace, "\n  "))
}

// explore visits every state that can be reached, and checks H1 and H2 in each
// of them, then H3 to H5 on the whole.
func explore(sc *scenario) (*exploration, error) {
	x := &exploration{scenario: sc, seed: maphash.MakeSeed(), ids: map[uint64]int32{}, unrest: map[int32]error{}}
	first := sc.initial()
	first.canonical()
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
	x.offsets = append(x.offsets, len(x.targets))
	return x, x.checkProgress()
}

// expand checks a state, takes all its steps and gives the states not seen before.
func (x *exploration) expand(id int32, s *state) ([]state, error) {
	if err := invariant.Held(x.snapshot(s)); err != nil {
		return nil, x.violation(id, err)
	}
	x.offsets = append(x.offsets, len(x.targets))
	var reached []state
	var broken error
	x.next(s, func(st step, to state) {
		if st.broken != nil && broken == nil {
			broken = st.broken
			return
		}
		to.canonical()
		known := len(x.hashes)
		target := x.number(&to, id)
		if int(target) == known {
			reached = append(reached, to)
		}
		x.transitions++
		if !st.kind.disturbs() && !st.disturbs && target != id {
			x.targets = append(x.targets, target)
			x.kinds = append(x.kinds, st.kind)
		}
	})
	if broken != nil {
		return nil, x.violation(id, broken)
	}
	if len(x.targets) == x.offsets[id] {
		if err := x.rest(s); err != nil {
			x.unrest[id] = err
		}
	}
	return reached, nil
}

// number gives a state its number, in the order of discovery.
func (x *exploration) number(s *state, parent int32) int32 {
	hash := maphash.Comparable(x.seed, *s)
	if id, ok := x.ids[hash]; ok {
		return id
	}
	id := int32(len(x.hashes))
	x.ids[hash] = id
	x.hashes = append(x.hashes, hash)
	x.parents = append(x.parents, parent)
	return id
}

// violation finds the way to a state, and on, by walking it again.
func (x *exploration) violation(id int32, broken error, on ...int32) error {
	var way []int32
	for at := id; at >= 0; at = x.parents[at] {
		way = append([]int32{at}, way...)
	}
	way = append(way, on...)
	at := x.initial()
	at.canonical()
	trace := []string{fmt.Sprintf("%-45s %s", "at first", &at)}
	for _, id := range way[1:] {
		from := at
		found := false
		x.next(&from, func(st step, to state) {
			to.canonical()
			if !found && maphash.Comparable(x.seed, to) == x.hashes[id] {
				trace = append(trace, st.describe(&from, &to))
				at, found = to, true
			}
		})
	}
	return &violation{broken: broken, trace: trace}
}

// rest says what is wrong with a state in which nothing goes on by itself
// (H4), volumes that can't become ready aside (H5).
func (x *exploration) rest(s *state) error {
	var problems []error
	for v := range x.volumes {
		problems = append(problems, x.restOf(s, v))
	}
	sharers := 0
	for i := range s.pods {
		p := &s.pods[i]
		if p.state == noPod {
			continue
		}
		// A pod that has failed stays while the status of what the guest keeps names it.
		if !s.vmi.expects(p.name, p.uid) && !x.sticks(s, p.volumes) {
			problems = append(problems, fmt.Errorf("H4: pod %d is left over", p.name))
		}
		if p.volumes&(x.broken|x.exclusive) == 0 {
			sharers++
		}
	}
	if sharers > x.maxAttachmentPods && !x.sticks(s, 1<<maxVolumes-1) {
		problems = append(problems, fmt.Errorf("H4: %d attachment pods are left, at most %d should be", sharers, x.maxAttachmentPods))
	}
	return errors.Join(problems...)
}

// restOf says what is wrong with the rest of one volume.
func (x *exploration) restOf(s *state, v int) error {
	e := &s.vmi.entries[v]
	name := volumeNames[v].Name
	switch p := s.podByUID(e.uid); {
	case e.phase == absent && s.disks[v].open():
		return fmt.Errorf("H4: no status tells of volume %s, which QEMU has", name)
	case x.sticks(s, 1<<v), e.phase == unmounted && p != nil && x.sticks(s, p.volumes):
	case !s.vmi.wanted.has(v) && e.phase != absent:
		return fmt.Errorf("H4: volume %s is not wanted and does not go", name)
	case s.vmi.wanted.has(v) && !x.broken.has(v) && e.phase != ready:
		return fmt.Errorf("H4, H5: volume %s is wanted and does not become ready", name)
	case e.phase == ready && s.disks[v] != plugged:
		return fmt.Errorf("H4: volume %s is Ready and the guest does not have it", name)
	case e.phase == ready && (p == nil || !p.alive()):
		return fmt.Errorf("H4: volume %s is Ready through a pod that is gone", name)
	}
	return nil
}

// sticks reports whether the guest keeps one of the volumes, which puts merging
// off and keeps the pod that holds it.
func (x *exploration) sticks(s *state, volumes set) bool {
	for v := range x.volumes {
		if !volumes.has(v) || !x.sticky.has(v) {
			continue
		}
		// It keeps the disk, or what is left of one that was taken by force.
		phase := s.vmi.entries[v].phase
		if phase == detaching && !s.vmi.forced.has(v) || phase == attached && s.disks[v] == hollow {
			return true
		}
	}
	return false
}

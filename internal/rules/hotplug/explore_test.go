package hotplug_test

import (
	"errors"
	"fmt"

	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/hotplug/invariant"
)

// mostStates bounds the memory of an exploration.
const mostStates = 20_000_000

var errEndless = errors.New("H3, H4: the last steps can be repeated for ever")

// fair are the steps that eventually happen while they remain possible: those that do not depend on the controller's
// decisions.
var fair = []kind{kubeletStarts, kubeletRemoves, deletionArrives, vmiCacheMoves, podCacheMoves,
	handlerPlugs, handlerForces, handlerClears, guestReleases, handlerSaysAttached, handlerSaysMounted, handlerSaysReady, handlerSaysDetaching,
	handlerSaysUnmounted, handlerHandsOver, targetTakes, migrationArrives, otherEnds}

// explore checks H1 and H2 in each reachable state, and then H3 to H5 on the whole graph.
func explore(sc *scenario) (*exploration.Graph[state, step], error) {
	first := sc.initial()
	first.canonical()
	g, err := exploration.Explore(&exploration.Model[state, step]{
		Initial: first,
		Next: func(s *state, emit func(step, state)) {
			sc.next(s, func(st step, to state) {
				to.canonical()
				emit(st, to)
			})
		},
		Check: func(s *state) error {
			return errors.Join(invariant.Held(sc.snapshot(s)), sc.heldWhereOpen(s))
		},
		Broken:   func(st step) error { return st.broken },
		Progress: func(st step) (uint8, bool) { return uint8(st.kind), !st.kind.disturbs() && !st.disturbs },
		Rest:     sc.rest,
		Name:     step.describe,
		Text:     (*state).String,
		Most:     mostStates,
	})
	if err != nil {
		return g, err
	}
	// Without disturbances every run must come to rest, and rest must be good.
	var kinds []uint8
	for _, k := range fair {
		kinds = append(kinds, uint8(k))
	}
	return g, g.AlwaysRests(errEndless, kinds...)
}

// rest returns the error of a state without further steps (H4), except for volumes that can't become ready (H5).
func (sc *scenario) rest(s *state) error {
	problems := []error{s.restOfMoves()}
	for v := range sc.volumes {
		problems = append(problems, sc.restOf(s, v))
	}
	sharers := 0
	for i := range s.pods {
		p := &s.pods[i]
		if p.state == noPod {
			continue
		}
		// A failed pod stays while the status of a volume that the guest keeps names it.
		if !s.vmi.expects(p.name, p.uid) && !sc.sticks(s, p.volumes) {
			problems = append(problems, fmt.Errorf("H4: pod %d is left over", p.name))
		}
		if p.volumes&(sc.broken|sc.exclusive) == 0 {
			sharers++
		}
	}
	if sharers > sc.maxAttachmentPods && !sc.sticks(s, 1<<maxVolumes-1) {
		problems = append(problems, fmt.Errorf("H4: %d attachment pods are left, at most %d should be", sharers, sc.maxAttachmentPods))
	}
	return errors.Join(problems...)
}

// restOf returns the error of one volume at rest.
func (sc *scenario) restOf(s *state, v int) error {
	e := &s.vmi.entries[v]
	name := volumeNames[v].Name
	switch p := s.podByUID(e.uid); {
	case e.phase == absent && s.disks[v].open():
		return fmt.Errorf("H4: no status tells of volume %s, which QEMU has", name)
	case sc.sticks(s, 1<<v), e.phase == unmounted && p != nil && sc.sticks(s, p.volumes):
	case !s.vmi.wanted.has(v) && e.phase != absent:
		return fmt.Errorf("H4: volume %s is not wanted and does not go", name)
	case s.vmi.wanted.has(v) && !sc.broken.has(v) && e.phase != ready:
		return fmt.Errorf("H4, H5: volume %s is wanted and does not become ready", name)
	case e.phase == ready:
		return s.restOfReady(v, p)
	}
	return nil
}

// restOfReady returns the error of a volume that is Ready through a pod, which is nil when it is gone.
func (s *state) restOfReady(v int, p *pod) error {
	switch name := volumeNames[v].Name; {
	case s.disks[v] != plugged:
		return fmt.Errorf("H4: volume %s is Ready and the guest does not have it", name)
	case p == nil, !p.alive():
		return fmt.Errorf("H4: volume %s is Ready through a pod that is gone", name)
	}
	return nil
}

// sticks reports whether the guest keeps one of the volumes, which delays merging and keeps its pod.
func (sc *scenario) sticks(s *state, volumes set) bool {
	for v := range sc.volumes {
		if !volumes.has(v) || !sc.sticky.has(v) {
			continue
		}
		// The guest keeps the disk, or the remains of a forced unplug.
		phase := s.vmi.entries[v].phase
		if phase == detaching && !s.vmi.forced.has(v) || phase == attached && s.disks[v] == detached {
			return true
		}
	}
	return false
}

package hotplug_test

import (
	"fmt"
	"slices"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/invariant"
)

// kind is the kind of a step.
type kind uint8

const (
	userAdds kind = iota
	userRemoves
	userForces
	podDeleted
	podFails
	controllerDies
	controllerWritesAndDies
	lateCreation
	migrationBegins
	migrationFails
	// The steps above are disturbances; those below happen by themselves.
	kubeletStarts
	kubeletRemoves
	deletionArrives
	vmiCacheMoves
	podCacheMoves
	controllerWrites
	controllerCreates
	controllerDeletes
	controllerAsks
	controllerLooks
	handlerPlugs
	handlerFails
	handlerForces
	handlerClears
	guestReleases
	handlerSaysAttached
	handlerSaysMounted
	handlerSaysReady
	handlerSaysDetaching
	handlerSaysUnmounted
	handlerHandsOver
	targetTakes
	migrationArrives
	otherEnds
)

func (k kind) disturbs() bool { return k < kubeletStarts }

func (k kind) ofVolume() bool {
	return k >= handlerPlugs && k <= handlerHandsOver || k == userAdds || k == userRemoves || k == userForces
}

var kindNames = [...]string{
	"the user adds %s", "the user removes %s", "the user forces %s out", "somebody deletes pod %d", "pod %d fails", "the controller dies",
	"the controller writes the VMI and dies", "a creation by a controller that died arrives", "a migration begins", "the migration fails",
	"pod %d starts", "pod %d is gone", "the deletion of pod %d arrives", "the VMI cache catches up", "the pod cache catches up",
	"the controller writes the VMI", "the controller creates a pod", "the controller decides to delete pods",
	"the controller asks for the pods", "the controller asks for the VMI, and sees nothing to do",
	"virt-handler plugs %s", "virt-handler fails to plug %s", "virt-handler takes %s by force", "virt-handler clears %s",
	"the guest releases %s", "virt-handler says that %s waits", "virt-handler says that %s is mounted",
	"virt-handler says that %s is ready", "virt-handler says that %s is detaching", "virt-handler says that %s is unmounted",
	"virt-handler hands %s over", "the target's QEMU gets the volumes", "the guest arrives", "the pod on the other node ends",
}

// step is one transition; its argument is a volume or a pod's place.
type step struct {
	kind kind
	arg  int
	// disturbs is set for steps that need not happen.
	disturbs bool
	// broken is the invariant that the step itself violates.
	broken error
}

func (st step) describe(from *state) string {
	text := kindNames[st.kind]
	switch {
	case st.kind.ofVolume():
		text = fmt.Sprintf(text, volumeNames[st.arg].Name)
	case st.kind == podDeleted, st.kind == podFails, st.kind == kubeletStarts, st.kind == kubeletRemoves, st.kind == deletionArrives:
		text = fmt.Sprintf(text, from.pods[st.arg].name)
	}
	return text
}

func (s *state) String() string {
	out := "wanted"
	for v := range maxVolumes {
		if s.vmi.wanted.has(v) {
			out += " " + volumeNames[v].Name
		}
	}
	for v, e := range s.vmi.entries {
		if e.phase != absent {
			out += fmt.Sprintf("; %s %s", volumeNames[v].Name, phaseNames[e.phase])
			if e.uid != 0 {
				out += fmt.Sprintf(" (pod %d)", e.name)
			}
		}
		if d := s.disks[v]; d != noDisk {
			out += fmt.Sprintf("; QEMU has %s %s", volumeNames[v].Name, [...]string{"", "plugged", "partly", "closing", "detached"}[d])
		}
	}
	for i := range s.pods {
		if p := &s.pods[i]; p.state != noPod {
			out += fmt.Sprintf("; pod %d %s", p.name, [...]string{"", "starting", "running", "terminating", "failed"}[p.state])
			for _, v := range volumeLists[p.volumes] {
				out += " " + v.Name
			}
		}
	}
	return out
}

// emitter takes a step and the resulting state.
type emitter func(step, state)

// next emits all possible steps from s.
func (sc *scenario) next(s *state, emit emitter) {
	sc.user(s, emit)
	sc.deleteExternally(s, emit)
	sc.kubelet(s, emit)
	if sc.moves > 0 {
		sc.migrates(s, emit)
	}
	sc.caches(s, emit)
	sc.controller(s, emit)
	for v := range sc.volumes {
		sc.handler(s, v, emit)
	}
}

func (sc *scenario) user(s *state, emit emitter) {
	if s.changes == 0 || s.vmi.moving {
		return // during a migration the spec must not change
	}
	sc.forcer(s, emit)
	for v := range sc.volumes {
		if wanted := s.vmi.wanted.has(v); wanted && !sc.removes.has(v) || !wanted && !sc.adds.has(v) {
			continue
		}
		to := *s
		to.changes--
		to.touchVMI()
		if s.late > 0 {
			to.before = s.vmi
			to.before.forgetOrphans()
		}
		to.vmi.wanted ^= 1 << v
		to.vmi.forced &^= 1 << v
		if to.vmi.wanted.has(v) {
			emit(step{kind: userAdds, arg: v}, to)
		} else {
			emit(step{kind: userRemoves, arg: v}, to)
		}
	}
}

// forcer is the user who forces an unplug that the guest was asked for.
func (sc *scenario) forcer(s *state, emit emitter) {
	for v := range sc.volumes {
		if sc.forces.has(v) && s.vmi.entries[v].phase == detaching && !s.vmi.forced.has(v) {
			to := *s
			to.changes--
			to.touchVMI()
			to.vmi.forced |= 1 << v
			emit(step{kind: userForces, arg: v}, to)
		}
	}
}

func (sc *scenario) deleteExternally(s *state, emit emitter) {
	if s.asking {
		to := *s
		to.asking = false
		emit(step{kind: controllerDies}, to)
	}
	for _, h := range s.vmi.attachmentPods {
		if s.late == 0 {
			break
		}
		to := *s
		to.late--
		if h.name != 0 && to.create(h.name, h.volumes, s.vmi.node) {
			emit(step{kind: lateCreation}, to)
		}
	}
	if s.deletions == 0 {
		return
	}
	for i := range s.pods {
		p := s.pods[i]
		if p.state != starting && p.state != running {
			continue
		}
		for _, end := range []struct {
			kind  kind
			state podState
		}{{podDeleted, ending}, {podFails, failed}} {
			to := *s
			to.deletions--
			to.touchPods()
			to.pods[i].state, to.pods[i].deletedExternally = end.state, true
			to.pods[i].deletion = to.pods[i].deletion && end.state == failed
			for v := range sc.volumes {
				if e := &to.vmi.entries[v]; e.uid == p.uid {
					e.orphan = true
				}
			}
			emit(step{kind: end.kind, arg: i}, to)
		}
	}
}

func (sc *scenario) kubelet(s *state, emit emitter) {
	for i := range s.pods {
		p := &s.pods[i]
		if p.state == starting && p.volumes&sc.broken == 0 && !sc.excluded(s, i) {
			to := *s
			to.touchPods()
			to.pods[i].state, to.pods[i].ran = running, true
			emit(step{kind: kubeletStarts, arg: i}, to)
		}
		if p.state == ending {
			to := *s
			to.touchPods()
			to.removePod(i)
			emit(step{kind: kubeletRemoves, arg: i}, to)
		}
		if p.deletion {
			to := *s
			to.touchPods()
			to.pods[i].deletion = false
			st := step{kind: deletionArrives, arg: i, broken: invariant.Deletable(sc.snapshot(s), string(uids[p.uid]))}
			if p.state == failed {
				to.removePod(i)
			} else {
				to.pods[i].state = ending
			}
			emit(st, to)
		}
	}
}

// excluded reports whether another pod keeps an exclusive claim of the pod.
func (sc *scenario) excluded(s *state, i int) bool {
	for j := range s.pods {
		p := &s.pods[j]
		if j != i && p.volumes&s.pods[i].volumes&sc.exclusive != 0 && p.ran && p.state != noPod && p.state != failed {
			return true
		}
	}
	return false
}

func (sc *scenario) caches(s *state, emit emitter) {
	if s.vmiStale {
		to := *s
		to.vmiStale = false
		emit(step{kind: vmiCacheMoves}, to)
	}
	if s.podStale {
		to := *s
		to.podStale = false
		emit(step{kind: podCacheMoves}, to)
	}
}

// controller is one action of virt-controller: it decides with its caches, or with the API server's answer. Its death
// between two actions equals other steps in between.
func (sc *scenario) controller(s *state, emit emitter) {
	vmi, seen := &s.vmi, &s.pods
	if s.vmiStale && !s.asking {
		vmi = &s.vmiCache
	}
	if s.podStale {
		seen = &s.podCache
	}
	anyStarting := slices.ContainsFunc(seen[:], func(p pod) bool { return p.state == starting })
	anyReady := slices.ContainsFunc(vmi.entries[:], func(e entry) bool { return e.phase == ready })
	for _, start := range [...]pace{noPace, {scheduling: true}, {stuck: true}} {
		for _, settled := range [...]bool{false, true} {
			// A pod that the controller asks for before deleting it has its node, and keeps it.
			if start != noPace && !anyStarting || start.scheduling && s.asking || settled && !anyReady {
				continue
			}
			start.settled = settled
			plan := sc.decide(sc.observed(vmi, seen, start, s.asking))
			sc.act(s, vmi, &plan, emit)
		}
	}
}

// write is virt-controller's write of the VMI, alone and with the controller's death after it.
func (s *state) write(plan *hotplug.Plan, emit emitter) {
	to := *s
	to.asking = false
	to.vmi = written(s.vmi, plan)
	to.vmiStale = false
	to.findOrphans(&s.vmi)
	emit(step{kind: controllerWrites}, to)
	// Its successor may start with a view from just before, or from long before.
	to.vmiStale, to.vmiCache = true, s.vmi
	if s.late > 0 {
		to.vmiCache = s.before
	}
	to.vmiCache.forgetOrphans()
	emit(step{kind: controllerWritesAndDies}, to)
}

func (sc *scenario) act(s *state, vmi *object, plan *hotplug.Plan, emit emitter) {
	switch {
	case plan.Changed:
		if vmi == &s.vmi { // otherwise the API server refuses
			s.write(plan, emit)
		}
		return
	case plan.Needs != "":
		to := *s
		to.asking, to.podStale = true, false
		emit(step{kind: controllerAsks}, to)
	case s.asking && len(plan.Create) == 0 && len(plan.Delete) == 0:
		to := *s
		to.asking = false
		emit(step{kind: controllerLooks}, to)
	}
	for _, h := range plan.Create {
		to := *s
		to.asking = false
		if to.create(nameOf(h.Name), setOf(h.Volumes), vmi.host()) {
			emit(step{kind: controllerCreates}, to)
		}
	}
	if len(plan.Delete) == 0 {
		return
	}
	to := *s
	to.asking = false
	for _, d := range plan.Delete {
		for i := range to.pods {
			if p := &to.pods[i]; p.state != noPod && p.state != ending && uids[p.uid] == d.UID {
				p.deletion = true
			}
		}
	}
	emit(step{kind: controllerDeletes}, to)
}

// findOrphans marks the volumes whose pods somebody has deleted. A volume whose pod was gone stays marked when the next
// pod is gone, too.
func (s *state) findOrphans(before *object) {
	for v := range s.vmi.entries {
		e := &s.vmi.entries[v]
		p := s.podByUID(e.uid)
		e.orphan = e.orphan || p != nil && p.deletedExternally || p == nil && e.uid != 0 && before.entries[v].orphan
	}
}

// create makes a pod unless one of the name exists, or the bound on existing pods is reached.
func (s *state) create(name uint8, volumes set, node uint8) bool {
	uid, free := uint8(0), -1
	s.eachName(func(*uint8) {}, func(u *uint8) { uid = max(uid, *u) })
	for i := range s.pods {
		if s.pods[i].state == noPod {
			free = i
			break
		}
		if s.pods[i].name == name {
			return false
		}
	}
	if free < 0 {
		return false // the API server is slow; it will create the pod when another is gone
	}
	s.touchPods()
	s.pods[free] = pod{name: name, uid: uid + 1, node: node, volumes: volumes, state: starting}
	return true
}

func (s *state) removePod(i int) {
	copy(s.pods[i:], s.pods[i+1:])
	s.pods[maxPods-1] = pod{}
}

// touchVMI and touchPods precede another's change: the controller's cache keeps the old state.
func (s *state) touchVMI() {
	if !s.vmiStale {
		s.vmiCache, s.vmiStale = s.vmi, true
		s.vmiCache.forgetOrphans()
	}
}

// forgetOrphans drops the test's own marks from a VMI.
func (o *object) forgetOrphans() {
	for v := range o.entries {
		o.entries[v].orphan = false
	}
}

func (s *state) touchPods() {
	if !s.podStale {
		s.podCache, s.podStale = s.pods, true
		for i := range s.podCache {
			s.podCache[i].deletion, s.podCache[i].deletedExternally = false, false
		}
	}
}

func (o *object) records(name, uid uint8) bool {
	for _, h := range o.attachmentPods {
		if h.name == name && h.uid == uid {
			return true
		}
	}
	return false
}

// expects reports whether the pod is a recorded one, or may become it.
func (o *object) expects(name, uid uint8) bool {
	return o.records(name, uid) || o.records(name, 0)
}

func (s *state) podByUID(uid uint8) *pod {
	for i := range s.pods {
		if s.pods[i].state != noPod && s.pods[i].uid == uid {
			return &s.pods[i]
		}
	}
	return nil
}

// snapshot returns the state for package invariant.
func (sc *scenario) snapshot(s *state) invariant.Snapshot {
	out := invariant.Snapshot{DeletedExternally: func(uid string) bool {
		for v := range s.vmi.entries {
			if e := &s.vmi.entries[v]; e.orphan && string(uids[e.uid]) == uid {
				return true
			}
		}
		return false
	}}
	for v := range sc.volumes {
		if e := s.vmi.entries[v]; e.phase != absent || s.disks[v].open() {
			out.Volumes = append(out.Volumes, invariant.Volume{
				Name: volumeNames[v].Name, Phase: phaseNames[e.phase], Pod: string(uids[e.uid]), Wanted: s.vmi.wanted.has(v),
				Open: s.disks[v].open(),
			})
		}
	}
	for i := range s.pods {
		if p := &s.pods[i]; p.state != noPod {
			out.Pods = append(out.Pods, invariant.Pod{
				UID: string(uids[p.uid]), Volumes: namesOf[p.volumes], DeletedExternally: p.deletedExternally,
				Running: p.state == running || p.state == ending && p.ran, Terminating: p.state == ending,
			})
		}
	}
	return out
}

var namesOf = func() (out [len(volumeLists)][]string) {
	for mask, volumes := range volumeLists {
		for _, v := range volumes {
			out[mask] = append(out[mask], v.Name)
		}
	}
	return out
}()

package snapshot

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// This exploration is like the other one, with disks in one VolumeGroupSnapshot. Users of the namespace label another
// claim at any time, and delete the group.

// together is a VolumeGroupSnapshot. stray means that it has another volume, too, and still that the guest was held
// with its token when it was taken.
type together struct {
	made, taken, members, ready bool
	token                       uint8
	stray, still                bool
}

// unheld is the token Unheld.
const unheld = 9

// scene is the true state, or a reading of it.
type scene struct {
	phase                    snapshotv1.VirtualMachineSnapshotPhase
	locked                   bool
	content, reported, named bool
	ready                    bool
	group                    together
	guest, agent             bool
	token                    uint8
	held                     bool
	// stray means that another claim has the label.
	stray bool
	// soon means that the group was taken just before it was read.
	soon bool
}

// story is a state of the exploration.
type story struct {
	scene
	issued, groups uint8
	stage          uint8
	read           scene
	// wrong is the forbidden action, if there was one.
	wrong string
}

func (s story) next() (all []story) {
	add := func(may bool, change func(*story)) {
		if to := s; may {
			change(&to)
			all = append(all, to)
		}
	}
	g := s.group
	add(!s.stray && s.groups < 2, func(to *story) { to.stray = true })
	add(g.made && !g.taken, func(to *story) {
		to.group.taken, to.group.stray = true, s.stray
		to.group.still = s.held && s.token == g.token
	})
	add(g.taken && !g.members, func(to *story) { to.group.members = true })
	add(g.members && !g.ready, func(to *story) { to.group.ready = true })
	add(g.made, func(to *story) { to.group = together{} })
	add(s.held, func(to *story) { to.held = false })
	add(s.agent, func(to *story) { to.agent, to.held = false, false })
	add(s.guest, func(to *story) { to.guest, to.held, to.token = false, false, 0 })
	return append(all, s.controller()...)
}

func (s story) controller() []story {
	dies, goes := s, s
	dies.stage, dies.read = 0, scene{}
	goes.stage++
	switch s.stage {
	case 0:
		goes.read = s.scene
		goes.read.group, goes.read.stray, goes.read.token, goes.read.held = together{}, false, 0, false
		return []story{goes}
	case 1:
		goes.read.group, goes.read.stray = s.group, s.stray
		goes.read.group.still = false // unknown to virt-controller
		soon := goes
		soon.read.soon = true
		return []story{dies, goes, soon}
	case 2:
		goes.read.token, goes.read.held = s.token, s.held
	default:
		return []story{dies, s.act(true), s.act(false)}
	}
	return []story{dies, goes}
}

// act executes the decision on the earlier reading, or only its first part.
func (s story) act(whole bool) story {
	plan := Decide(s.read.observed())
	to, read := s, s.read
	to.stage, to.read, to.phase = 0, scene{}, plan.Snapshot.Status.Phase
	to.judge(plan.Step, read, s.group)
	switch plan.Step {
	case Lock:
		to.locked = true
	case Unlock:
		to.locked, to.held = false, s.held && !whole
	case MakeContent:
		to.labels(plan.Labels)
		to.content = whole
	case Discard:
		to.content, to.named, to.reported, to.ready, to.group = false, false, false, false, together{}
	case Quiesce:
		if to.quiesce(); to.held {
			to.stage, to.read = s.stage, read
			to.read.token, to.read.held = to.token, to.held
		}
	case Cut:
		to.labels(plan.Labels)
		to.cut(plan.Group.Token, whole)
	case Name:
		to.named = true
	case Report:
		to.reported, to.ready, to.held = true, *plan.Content.Status.ReadyToUse, s.held && !whole
	}
	return to
}

// judge returns the error of a decision on a reading; now is the present group.
func (s *story) judge(step Step, read scene, now together) {
	g := read.group
	unfrozen := g.token != 0 && g.token != unheld && now.made && !now.still
	incomplete := !read.named || !read.reported
	switch {
	case s.phase == snapshotv1.Succeeded && (incomplete || g.stray):
		s.wrong = "it has succeeded without its members, or with others"
	case step == Quiesce && !read.agent:
		s.wrong = "a guest without an agent was held"
	case step == Name && g.stray:
		s.wrong = "members of a group with others are named"
	case step != Report || read.reported:
	case !g.taken, g.stray, unfrozen:
		s.wrong = "the content says that a group was taken which was not, or is of others, or of a guest that was not held"
	}
}

func (s *story) quiesce() {
	if s.guest && !s.held && s.issued < 2 {
		s.issued++
		s.token, s.held = s.issued, true
	}
}

func (s *story) cut(token string, whole bool) {
	if whole && !s.group.made && s.groups < 2 {
		s.groups++
		s.group = together{made: true, token: map[string]uint8{"": 0, "t1": 1, "t2": 2, Unheld: unheld}[token]}
	}
}

func (s *story) labels(l *Labels) {
	if l != nil && len(l.Take) > 0 {
		s.stray = false
	}
}

// observed converts a scene to Decide's input.
func (s scene) observed() Observed {
	o := observed(ofADriverThatGroups, inProgress)
	if s.soon {
		at(3 * time.Second)(&o)
	}
	if s.content {
		grouped(nil)(&o)
	}
	if s.content && s.reported {
		reported(s.ready)(&o)
	}
	if s.stray {
		o.Labeled = []string{"other"}
	}
	if s.content && s.group.made {
		s.observeGroup(&o)
	}
	if s.content && s.named {
		members := []VolumeSnapshot{{UID: "gone"}, {UID: "gone"}}
		if s.group.members {
			members = []VolumeSnapshot{{Ready: s.group.ready, Taken: then}, {Ready: s.group.ready, Taken: then}}
		}
		named(members...)(&o)
	}
	o.VM.Status.SnapshotInProgress = nil
	if s.locked {
		locked(&o)
	}
	o.Snapshot.Status.Phase = s.phase
	s.observeGuest(&o)
	return o
}

func (s scene) observeGuest(o *Observed) {
	if !s.guest {
		return
	}
	runs(o)
	if s.agent {
		with1(v1.VirtualMachineInstanceAgentConnected)(o)
	}
	if ask, _ := AsksHold(*o); !ask {
		return
	}
	o.Hold = &launch.Hold{}
	if s.token > 0 {
		o.Hold = &launch.Hold{Token: name(s.token), Holder: "s1", Method: launch.MethodAgent}
		if !s.held {
			o.Hold.Ended = "it went on"
		}
	}
}

func (s scene) observeGroup(o *Observed) {
	of := name(s.group.token)
	if s.group.token == unheld {
		of = Unheld
	}
	o.Group = group(token(of))
	if s.group.stray {
		o.Group.Cuts = append(o.Group.Cuts, GroupCut{Handle: "h-other"})
	}
	switch {
	case !s.group.taken:
		notTaken(o.Group)
	case !s.group.members || !SeeksMembers(*o, o.Group):
		noNames(o.Group)
	}
}

// TestNoGroupCountsThatIsNotOfTheDisks: a group that the content reports as taken must have exactly the VM's disks,
// must have been taken while the guest was frozen if it says so, and a guest without an agent must not be held.
func TestNoGroupCountsThatIsNotOfTheDisks(t *testing.T) {
	var begin []story
	for _, s := range []scene{{}, {guest: true}, {guest: true, agent: true}} {
		s.phase = snapshotv1.InProgress
		begin = append(begin, story{scene: s})
	}
	seen, ends := map[story]bool{}, map[string]int{}
	for len(begin) > 0 {
		s := begin[len(begin)-1]
		begin = begin[:len(begin)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		if s.wrong != "" {
			t.Fatalf("%s: %+v", s.wrong, s)
		}
		switch {
		case s.phase == snapshotv1.Failed:
			ends["failed"]++
		case s.phase == snapshotv1.Succeeded && s.group.token == unheld:
			ends["went on"]++
		case s.phase == snapshotv1.Succeeded && s.group.token > 0:
			ends["frozen"]++
		case s.phase == snapshotv1.Succeeded:
			ends["stopped"]++
		}
		begin = append(begin, s.next()...)
	}
	t.Logf("explored %d states: %v", len(seen), ends)
	for _, end := range []string{"failed", "went on", "frozen", "stopped"} {
		if ends[end] == 0 {
			t.Errorf("the exploration is too small: nothing has ended as %q", end)
		}
	}
}

package snapshot

import (
	"fmt"
	"testing"

	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Decide runs against a model of a guest, its virt-launcher, a storage driver and a virt-controller that reads one
// object after another, may die at any point, and may execute half of a step.

const (
	mostWrites = 2
	mostTokens = 2
)

// wrote is the number of the guest's writes at that time.
type volume struct {
	made, taken bool
	token       uint8
	wrote       uint8
}

// cluster is the true state, or a reading of it.
type cluster struct {
	phase             snapshotv1.VirtualMachineSnapshotPhase
	locked            bool
	content, reported bool
	volumes           [2]volume
	guest             bool
	// token is the last hold's, and held means that the hold lasts.
	token uint8
	held  bool
}

// stage counts virt-controller's reads into read.
type model struct {
	cluster
	wrote uint8
	// issued counts the tokens so far.
	issued  uint8
	started bool
	stage   uint8
	read    cluster
}

func (m model) next() (all []model) {
	add := func(to model) { all = append(all, to) }
	if m.guest && !m.held && m.wrote < mostWrites {
		to := m
		to.wrote++
		add(to)
	}
	for i := range m.volumes {
		if v := &m.volumes[i]; v.made && !v.taken {
			to := m
			to.volumes[i].taken, to.volumes[i].wrote = true, m.wrote
			add(to)
		}
	}
	if m.held {
		to := m
		to.held = false
		add(to)
	}
	if m.guest {
		to := m
		to.guest, to.held, to.token = false, false, 0
		add(to)
	} else if !m.started && !m.locked {
		// A locked VM is not started (decision 420).
		to := m
		to.guest, to.started = true, true
		add(to)
	}
	return append(all, m.controller()...)
}

// controller emits virt-controller's possible next steps. It may die in any stage.
func (m model) controller() []model {
	dies, goes := m, m
	dies.stage, dies.read = 0, cluster{}
	goes.stage++
	switch m.stage {
	case 0:
		goes.read = m.cluster
		goes.read.volumes, goes.read.token, goes.read.held = [2]volume{}, 0, false
		return []model{goes}
	case 1:
		goes.read.volumes = m.volumes
		for i := range goes.read.volumes {
			goes.read.volumes[i].wrote = 0 // unknown to virt-controller
		}
	case 2:
		goes.read.token, goes.read.held = m.token, m.held
	default:
		goes = m.act(2)
		return []model{dies, goes, m.act(1)}
	}
	return []model{dies, goes}
}

// act executes the decision on the earlier reading, up to a number of its parts.
func (m model) act(most int) model {
	step, token := decided(m.read)
	to := m
	to.stage, to.read, to.phase = 0, cluster{}, step.status
	switch step.Step {
	case Lock:
		to.locked = true
	case Unlock:
		// The guest's node may be out of reach.
		to.locked, to.held = false, m.held && most == 1
	case MakeContent:
		to.content = true
	case Discard:
		to.content, to.volumes = false, [2]volume{}
	case Quiesce:
		if to.quiesce(); to.held {
			// It decides again on the earlier reading.
			to.stage, to.read = m.stage, m.read
			to.read.token, to.read.held = to.token, to.held
		}
	case Cut:
		to.cut(token, most)
	case Report:
		to.reported, to.held = true, m.held && most == 1
	}
	return to
}

func (m *model) quiesce() {
	if m.guest && !m.held && m.issued < mostTokens {
		m.issued++
		m.token, m.held = m.issued, true
	}
}

// cut makes the missing VolumeSnapshots.
func (m *model) cut(token uint8, most int) {
	for i := range m.volumes {
		if !m.volumes[i].made && most > 0 {
			m.volumes[i] = volume{made: true, token: token}
			most--
		}
	}
}

type outcome struct {
	Step
	status snapshotv1.VirtualMachineSnapshotPhase
}

// decided calls Decide.
func decided(c cluster) (outcome, uint8) {
	o := observed(inProgress)
	if c.content {
		begun()(&o)
		for i, v := range c.volumes {
			if !v.made {
				continue
			}
			was := VolumeSnapshot{Owner: "c1", Token: name(v.token)}
			if v.taken {
				was.Taken = then
			}
			o.VolumeSnapshots[*o.Content.Spec.VolumeBackups[i].VolumeSnapshotName] = was
		}
	}
	if c.reported && c.content {
		reported(false)(&o)
	}
	o.VM.Status.SnapshotInProgress = nil
	if c.locked {
		locked(&o)
	}
	if c.guest {
		runs(&o)
	}
	o.Snapshot.Status.Phase = c.phase
	if ask, _ := AsksHold(o); ask {
		o.Hold = &launch.Hold{}
		if c.token > 0 {
			o.Hold = &launch.Hold{Token: name(c.token), Holder: "s1", Method: launch.MethodStop}
			if !c.held {
				o.Hold.Ended = "it went on"
			}
		}
	}
	plan := Decide(o)
	var token uint8
	if len(plan.Cuts) > 0 && plan.Cuts[0].Token != "" {
		token = c.token
	}
	return outcome{plan.Step, plan.Snapshot.Status.Phase}, token
}

func name(token uint8) string {
	if token == 0 {
		return ""
	}
	return fmt.Sprintf("t%d", token)
}

// TestNoContentSaysThatItWasTakenUnlessTheGuestStoodStill: the guest must not have written between the
// VolumeSnapshots of a reported content.
func TestNoContentSaysThatItWasTakenUnlessTheGuestStoodStill(t *testing.T) {
	found := explore(t, func(m model) string {
		if m.content && m.reported && m.volumes[0].wrote != m.volumes[1].wrote {
			return "the content says that it was taken, and its disks are of two points in time"
		}
		return ""
	})
	if found.online == 0 || found.offline == 0 || found.failed == 0 {
		t.Errorf("the exploration is too small: %+v", found)
	}
}

// ends counts the outcomes.
type ends struct{ states, online, offline, failed int }

func explore(t *testing.T, wrong func(model) string) (found ends) {
	t.Helper()
	var begin []model
	for _, guest := range []bool{true, false} {
		begin = append(begin, model{cluster: cluster{phase: snapshotv1.InProgress, guest: guest}, started: guest})
	}
	seen := map[model]bool{}
	for len(begin) > 0 {
		m := begin[len(begin)-1]
		begin = begin[:len(begin)-1]
		if seen[m] {
			continue
		}
		seen[m] = true
		if why := wrong(m); why != "" {
			t.Fatalf("%s: %+v", why, m)
		}
		found.count(m)
		begin = append(begin, m.next()...)
	}
	found.states = len(seen)
	t.Logf("explored: %+v", found)
	return found
}

func (e *ends) count(m model) {
	switch {
	case m.phase == snapshotv1.Failed:
		e.failed++
	case m.reported && m.volumes[0].token > 0:
		e.online++
	case m.reported:
		e.offline++
	}
}

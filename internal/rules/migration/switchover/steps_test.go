package switchover_test

import (
	"errors"
	"time"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

var (
	errTwoGuests = errors.New("two QEMUs run the guest, or may at any moment")
	errClaims    = errors.New("the VMI names a claim that its guest has not written to last")
	errOlder     = errors.New("a QEMU runs the guest with memory from before it went on in the other")
	errUntrue    = errors.New("a fact is told that is not true")
	errTwoEnds   = errors.New("the migration has failed, and the target runs the guest")
	errEnded     = errors.New("the VMI is ended although a guest runs or is free to")
	errAbandoned = errors.New("the migration is said to have failed, and its target may run the guest or has")
	errStuck     = errors.New("nothing goes on, and there is neither one guest where the VMI says nor a VMI that has ended")
	errLost      = errors.New("the VMI has ended for a fault that costs no guest")
	errNotMoved  = errors.New("nothing goes wrong, and the guest does not move")
	errEndless   = errors.New("the last steps can be repeated for ever")
)

// step is a transition.
type step struct {
	name string
	// disturbs: it need not happen.
	disturbs bool
	broken   error
}

// rules are the explored decisions.
type rules struct {
	converge func(switchover.Progress, switchover.Limits, time.Duration) switchover.Convergence
	source   func(switchover.SourceFacts) switchover.SourceStep
	target   func(switchover.TargetFacts) switchover.TargetStep
	// writes returns virt-controller's writes and pod deletions.
	writes func(sight) []write
}

var drydocks = rules{switchover.DecideConvergence, switchover.DecideSource, switchover.DecideTarget, loops{}.all}

// fault is an event that happens a limited number of times.
type fault uint16

const (
	handlerDies fault = 1 << iota
	connectionCut
	qemuDies
	launcherDies
	podDeleted
	podForced
	nodeSilent
	canceled
	vmiDeleted
	givenUp
	oldLeader
	secondPod
	targetDeaf
	targetStuck
)

// scenario has the constants of an exploration.
type scenario struct {
	name string
	// large scenarios have more than 100,000 states; -short leaves them out.
	large bool
	// ready begins with a target that listens.
	ready bool
	// prompt virt-handlers see each version of the VMI at once.
	prompt bool
	// lateAnswers come from a source QEMU that runs on before virt-handler decides; with runStateFirst it is asked for
	// its run state before its migration.
	lateAnswers, runStateFirst bool
	// disks: the guest's disks are in its pod, and move with it.
	disks bool
	// postCopy lets the convergence request post-copy, pause that the guest is stopped.
	postCopy, pause bool
	// trusting ignores errors that only announce a second guest, such as a false message, so that the exploration shows
	// the consequence.
	trusting bool
	// keeps means that the guest must not be lost: the VMI does not end.
	keeps  bool
	kinds  fault
	faults int8
	rules  rules
}

// turn collects the possible steps of one state.
type turn struct {
	*scenario
	s    *state
	emit func(step, state)
}

func (sc *scenario) next(s *state, emit func(step, state)) {
	t := turn{sc, s, emit}
	for i := range s.handlers {
		t.handler(side(i))
		t.kubelet(side(i))
		t.faultsOf(side(i))
	}
	t.sourceDecides()
	t.targetDecides()
	t.messages()
	t.sourceQEMU()
	t.copying()
	t.targetQEMU()
	t.controller()
	t.faults()
	t.secondPods()
}

// may adds a step if it changes anything.
func (t *turn) may(st step, change func(*state)) {
	to := *t.s
	change(&to)
	to.remember(t.s.src)
	if !t.lateAnswers || to.src == srcEnded {
		to.handlers[source].asked = to.src
	}
	if t.prompt {
		for i := range to.handlers {
			to.look(side(i))
		}
	}
	if to != *t.s || st.broken != nil {
		t.emit(st, to)
	}
}

// remember notes where the guest has continued.
func (s *state) remember(before sourceQEMU) {
	s.hasRun = s.hasRun || s.tgt == tgtRuns
	s.same = s.same && !s.src.runs()
	if s.src == srcBack && before != srcBack && s.tgt > tgtIncoming && s.tgt < tgtEnded {
		s.stale = true
	}
}

func (t *turn) goesOn(name string, change func(*state)) { t.may(step{name: name}, change) }

// fault spends one of the faults.
func (t *turn) fault(kind fault, name string, possible bool, change func(*state)) {
	if !possible || t.s.faults == 0 || t.kinds&kind == 0 {
		return
	}
	t.may(step{name: name, disturbs: true}, func(to *state) {
		to.faults--
		change(to)
	})
}

// look gives a virt-handler the present VMI.
func (s *state) look(i side) {
	if s.handlers[i].up && s.nodes[i] == answers {
		s.handlers[i].view = s.vmi
	}
}

// A virt-handler does not learn whether its write took effect.
func (t *turn) write(i side, name string, broken error, change func(*switchover.Record)) {
	if t.s.nodes[i] == answers && t.s.handlers[i].view == t.s.vmi {
		t.may(step{name: name, broken: broken}, func(to *state) { change(&to.vmi) })
	}
}

// handler has the steps of a virt-handler beside the migration.
func (t *turn) handler(i side) {
	s, h := t.s, t.s.handlers[i]
	if !h.up {
		if s.nodes[i] == answers {
			t.goesOn(sides[i]+"'s virt-handler starts", func(to *state) { to.start(i) })
		}
		return
	}
	t.goesOn(sides[i]+"'s virt-handler sees the VMI", func(to *state) { to.look(i) })
	if i == source {
		t.goesOn("source's virt-handler asks QEMU", func(to *state) { to.handlers[i].asked = s.src })
	}
	stops := h.view.Final || h.view.Deleting && (i == source || s.tgt == tgtRuns)
	if stops && s.alive(i) {
		t.goesOn(sides[i]+"'s virt-handler stops the guest", func(to *state) { to.end(i, true) })
	}
}

// start is the start of a virt-handler on the present state.
func (s *state) start(i side) {
	s.handlers[i] = handler{up: true, view: s.vmi, unmarked: i == target && s.tgt < tgtMarked}
	if i == source {
		s.handlers[i].asked = s.src
	}
}

func (t *turn) sourceDecides() {
	if !t.s.handlers[source].up {
		return
	}
	f := t.s.sourceFacts()
	if t.runStateFirst {
		_, f.Status, f.PostCopyBytes = t.s.src.answers()
		f.RunState, _, _ = t.s.handlers[source].asked.answers()
	}
	t.sourceStep(t.rules.source(f))
	f.Stopped = overdue
	switch late := t.rules.source(f); {
	case late.Action == switchover.Withdraw, t.s.src == srcDevice && late.Action == switchover.Cancel:
		t.givesUp("the handover takes too long", late)
	case !t.s.finishes():
		t.sourceStep(late)
	case late.Action == switchover.Cancel:
		t.fault(givenUp, "the last of the disks takes too long, and the migration is canceled", true, (*state).cancelCopy)
	}
	f.Stopped = 0
	t.timePasses(f)
}

// timePasses has the decisions of a source whose copying takes too long.
func (t *turn) timePasses(f switchover.SourceFacts) {
	if t.postCopy || t.pause {
		f.Convergence = t.rules.converge(slow, t.limits(), 0)
		t.sourceStep(t.rules.source(f))
	}
	switch t.s.src {
	case srcCopiesStopped:
		f.Convergence = t.rules.converge(slow, t.limits(), overdue)
		t.givesUp("the guest is stopped for too long", t.rules.source(f))
	default:
		f.Convergence = switchover.Convergence{Action: switchover.GiveUp, Reason: "it is too slow"}
		t.givesUp("the migration does not converge", t.rules.source(f))
	}
}

// givesUp ends a migration that takes too long. It happens by itself if the target reads nothing.
func (t *turn) givesUp(why string, d switchover.SourceStep) {
	end := (*state).cancelHandover
	switch {
	case d.Action == switchover.Withdraw:
		end = sourceActs[switchover.Withdraw]
	case d.Action != switchover.Cancel:
		return
	}
	switch {
	case !t.s.deaf:
		t.fault(givenUp, why+", and the migration is given up", true, end)
	case d.Action == switchover.Cancel:
		t.cancel("source: " + why + ", and it is canceled")
	default:
		t.goesOn("source: "+why+", and it is withdrawn", end)
	}
}

// sourceStep sends the messages and executes the commands of a decision.
func (t *turn) sourceStep(d switchover.SourceStep) {
	s := t.s
	t.sourceTells(d.Tell)
	name := "source: " + string(d.Action)
	if write := sourceWrites[d.Action]; write != nil {
		var broken error
		if d.Action == switchover.ReportEnd {
			broken = s.endedTooEarly()
		}
		t.write(source, name, broken, write)
		return
	}
	switch d.Action {
	case switchover.SourceWait:
	case switchover.Begin:
		t.goesOn(name, func(to *state) {
			if to.src != srcRuns {
				return
			}
			to.src, to.stream, to.handlers[source].streams = srcCopies, to.tgt == tgtIncoming && to.connected(), true
		})
		t.fault(handlerDies, "source: virt-handler dies while it begins", s.src == srcRuns, func(to *state) {
			to.src = srcBack
			to.die(source)
		})
	case switchover.Cancel:
		t.cancel(name)
	case switchover.ContinueSwitchover:
		t.may(step{name: name, broken: s.otherDisks()}, sourceActs[d.Action])
	default:
		t.goesOn(name, sourceActs[d.Action])
	}
}

func (t *turn) sourceTells(fact switchover.Fact) {
	s := t.s
	if fact != switchover.Released || !s.connected() || s.handlers[target].released {
		return
	}
	var broken error
	firm := s.src >= srcPostCopyFirm && s.src <= srcStopped && s.left
	if s.src != srcSent && !firm && !s.exits[source].Sent && !t.trusting {
		broken = errUntrue
	}
	t.may(step{name: "source tells Released", broken: broken}, func(to *state) { to.released = true })
}

var sourceWrites = map[switchover.SourceAction]func(*switchover.Record){
	switchover.RecordStart:       func(r *switchover.Record) { r.Started = true },
	switchover.RecordPostCopy:    func(r *switchover.Record) { r.PostCopy = true },
	switchover.RecordFailed:      func(r *switchover.Record) { r.Failed = true },
	switchover.RecordAbortFailed: func(r *switchover.Record) { r.AbortFailed = true },
	switchover.ReportEnd:         finish,
}

var sourceActs = map[switchover.SourceAction]func(*state){
	switchover.MirrorDisks:   (*state).mirrorDisks,
	switchover.FinishMirrors: (*state).finishMirrors,
	switchover.EndMirrors:    (*state).endMirrors,
	switchover.MarkLeft:      func(to *state) { to.left = to.left || to.src >= srcPostCopy && to.src <= srcPostCopyPaused },
	switchover.SwitchToPostCopy: func(to *state) {
		if to.src == srcCopies {
			to.src, to.stopped, to.byPostCopy = srcCopiesStopped, true, true
		}
	},
	switchover.Withdraw: func(to *state) {
		if h := to.handlers[source]; h.streams && (to.src == srcPostCopy || to.src == srcPostCopyFirm) {
			to.stream, to.withdrawn = false, true
		}
	},
	switchover.PauseGuest: func(to *state) {
		if to.src == srcCopies {
			to.src, to.stopped = srcCopiesStopped, true
		}
	},
	switchover.ContinueSwitchover: func(to *state) {
		switch {
		case to.src != srcPreSwitchover:
		case !to.stream:
			to.goBack()
		case to.byPostCopy:
			to.src = srcPostCopy
		default:
			to.src = srcDevice
		}
	},
	switchover.Resume: func(to *state) {
		if to.src == srcSent {
			to.src, to.left = srcBack, false
		}
	},
	switchover.Quit: func(to *state) { to.end(source, true) },
	switchover.Recover: func(to *state) {
		if to.src == srcPostCopyPaused && to.connected() && to.listens {
			to.src, to.stream, to.stuck, to.listens = srcPostCopyFirm, true, false, false
		}
	},
	switchover.EndLost: func(to *state) { to.end(source, true) },
}

// cancelCopy is migrate_cancel before the switchover.
func (s *state) cancelCopy() {
	if s.src >= srcCopies && s.src <= srcPreSwitchover {
		s.goBack()
	}
}

// cancelHandover is migrate_cancel at any moment. QEMU refuses it in post-copy.
func (s *state) cancelHandover() {
	s.cancelCopy()
	if s.src == srcDevice {
		s.goBack()
	}
}

// cancel is migrate_cancel, which may come too late for QEMU.
func (t *turn) cancel(name string) {
	t.goesOn(name, (*state).cancelHandover)
	if t.s.whole && t.s.src == srcDevice {
		t.goesOn(name+", too late", func(to *state) { to.src = srcSent })
	}
}

func (t *turn) targetDecides() {
	s := t.s
	if !s.handlers[target].up {
		return
	}
	d := t.rules.target(s.targetFacts())
	t.targetTells(d.Tell)
	name := "target: " + string(d.Action)
	switch d.Action {
	case switchover.StartIncoming:
		t.goesOn(name, func(to *state) { to.tgt = tgtIncoming })
	case switchover.ReportReady:
		t.write(target, name, nil, func(r *switchover.Record) { r.Addressed = true })
	case switchover.ReportCompleted:
		t.write(target, name, nil, func(r *switchover.Record) { r.Completed = true })
	case switchover.RecoverIncoming:
		if s.takesRecovery() {
			t.goesOn(name, func(to *state) { to.listens = true })
		}
	case switchover.MarkAndRun:
		t.goesOn("target: mark", func(to *state) { to.tgt, to.handlers[target].unmarked = tgtMarked, false })
	case switchover.Run:
		t.goesOn(name, func(to *state) {
			if to.tgt == tgtMarked {
				to.tgt = tgtRuns
			}
		})
	case switchover.Kill:
		t.goesOn(name, func(to *state) { to.doomed, to.killing = true, s.doomed || s.tgt == tgtNotStarted })
	}
}

func (t *turn) targetTells(fact switchover.Fact) {
	s := t.s
	if !s.connected() || s.handlers[source].heard(fact) {
		return
	}
	var broken error
	if !t.trusting && (fact == switchover.Never && (s.tgt != tgtEnded || s.hasRun) || fact == switchover.Ran && !s.hasRun || fact == switchover.Loaded && s.tgt < tgtLoaded) {
		broken = errUntrue
	}
	t.may(step{name: "target tells " + string(fact), broken: broken}, func(to *state) { to.send(fact) })
}

func (s *state) send(fact switchover.Fact) {
	switch fact {
	case switchover.Ready:
		s.ready = true
	case switchover.Loaded:
		s.loaded = true
	case switchover.Ran:
		s.ran = true
	case switchover.Never:
		s.never = true
	}
}

func (h *handler) heard(fact switchover.Fact) bool {
	switch fact {
	case switchover.Ready:
		return h.ready
	case switchover.Loaded:
		return h.loaded
	case switchover.Ran:
		return h.ran
	case switchover.Never:
		return h.never
	}
	return true
}

// messages arrive at any time, as long as their receiver lives.
func (t *turn) messages() {
	s := t.s
	if s.handlers[source].up && s.nodes[source] == answers {
		t.goesOn("Ready arrives", func(to *state) { to.handlers[source].ready, to.ready = s.handlers[source].ready || s.ready, false })
		t.goesOn("Loaded arrives", func(to *state) { to.handlers[source].loaded, to.loaded = s.handlers[source].loaded || s.loaded, false })
		t.goesOn("Ran arrives", func(to *state) { to.handlers[source].ran, to.ran = s.handlers[source].ran || s.ran, false })
		t.goesOn("Never arrives", func(to *state) { to.handlers[source].never, to.never = s.handlers[source].never || s.never, false })
	}
	if s.handlers[target].up && s.nodes[target] == answers {
		t.goesOn("Released arrives", func(to *state) {
			to.handlers[target].released, to.released = s.handlers[target].released || s.released, false
		})
	}
	if !s.connected() {
		t.may(step{name: "what is on its way is lost", disturbs: true}, (*state).lose)
	}
}

func (s *state) lose() {
	s.ready, s.loaded, s.ran, s.never, s.released = false, false, false, false, false
}

func (t *turn) sourceQEMU() {
	s := t.s
	become := func(name string, q sourceQEMU) { t.goesOn(name, func(to *state) { to.src = q }) }
	switch {
	case s.src == srcDevice && s.whole:
		// The target's answer may have been on its way when the stream was cut.
		become("source's QEMU has sent the guest", srcSent)
	case s.src == srcPreSwitchover && !s.handlers[source].up && s.nodes[source] != fenced:
		t.goesOn("source's virt-launcher cancels without a virt-handler", (*state).cancelCopy)
	}
	if !s.stream {
		t.sourceIsCut()
		return
	}
	switch {
	case (s.src == srcCopies || s.src == srcCopiesStopped) && !s.deaf:
		become("source's QEMU stops the guest for the switchover", srcPreSwitchover)
	case s.src == srcPostCopy:
		// It may be in a buffer on its way, whether or not the target reads.
		become("source's QEMU sends the first page of post-copy", srcPostCopyFirm)
	case s.src == srcPostCopyFirm:
		if s.tgt > tgtIncoming && s.tgt < tgtEnded {
			t.goesOn("target's QEMU has the last page of post-copy", func(to *state) { to.whole = true })
		}
		if s.whole {
			become("source's QEMU has sent the last page of post-copy", srcSent)
		}
	}
}

// sourceIsCut has the steps of the source's QEMU without a connection.
func (t *turn) sourceIsCut() {
	become := func(name string, q sourceQEMU) { t.goesOn(name, func(to *state) { to.src = q }) }
	switch t.s.src {
	case srcCopies, srcCopiesStopped, srcDevice:
		t.goesOn("source's QEMU sees that the stream is cut, and keeps the guest", (*state).goBack)
	case srcPostCopy:
		switch {
		case t.s.withdrawn, t.s.shielded():
			become("source's QEMU sends the first page of post-copy to nowhere", srcPostCopyFirm)
		default:
			t.goesOn("source's QEMU sees that the stream is cut, and keeps the guest", (*state).goBack)
		}
	case srcPostCopyFirm:
		if t.s.whole && (t.s.withdrawn || t.s.shielded()) {
			// The target's answer may have been on its way.
			become("source's QEMU has sent the last page of post-copy", srcSent)
		}
		switch {
		case t.s.withdrawn:
			t.goesOn("source's QEMU has sent all to nowhere, and fails", (*state).goBack)
			return
		case t.s.shielded():
			return
		}
		become("source's QEMU pauses the post-copy", srcPostCopyPaused)
		if t.s.whole {
			become("source's QEMU fails at the end of the post-copy", srcStopped)
		}
	case srcStopped:
		t.resumesStopped()
	}
}

// resumesStopped is virt-handler's step that resumes a guest after its migration has failed.
func (t *turn) resumesStopped() {
	if s := t.s; !s.left && s.handlers[source].up {
		t.goesOn("source's virt-handler has the guest go on whose migration has failed", func(to *state) { to.src = srcBack })
	}
}

// targetQEMU has the own steps of the target's QEMU.
func (t *turn) targetQEMU() {
	s := t.s
	if s.killing {
		t.goesOn("target's virt-launcher ends QEMU", func(to *state) { to.end(target, true) })
	}
	if s.tgt != tgtIncoming {
		return
	}
	switch {
	case !s.stream && s.src != srcRuns:
		t.goesOn("target's QEMU ends with the stream", func(to *state) { to.end(target, true) })
	case s.deaf:
		t.may(step{name: "target's QEMU reads again", disturbs: true}, func(to *state) { to.deaf = false })
	case s.src == srcDevice:
		t.goesOn("target's QEMU has loaded the guest", func(to *state) { to.tgt, to.whole = tgtLoaded, true })
	case s.src == srcPostCopy, s.src == srcPostCopyFirm:
		t.goesOn("target's QEMU has loaded what post-copy begins with", func(to *state) { to.tgt = tgtLoaded })
	}
}

// kubelet has the steps of a node's kubelet.
func (t *turn) kubelet(i side) {
	s, p := t.s, t.s.pods[i]
	switch s.nodes[i] {
	case silent:
		t.goesOn(sides[i]+"'s node answers again", func(to *state) { to.nodes[i] = answers })
		t.may(step{name: sides[i] + "'s node is off, and declared out of service", disturbs: true}, func(to *state) {
			if to.alive(i) {
				to.end(i, false)
			}
			to.die(i)
			to.nodes[i], to.pods[i] = fenced, pod{gone: true}
		})
		return
	case fenced:
		return
	}
	switch {
	case s.alive(i) && p.going():
		t.goesOn(sides[i]+"'s kubelet ends the pod", func(to *state) { to.end(i, true) })
	case !s.alive(i) && !p.final && !p.gone:
		t.goesOn(sides[i]+"'s kubelet says that the pod has ended", func(to *state) { to.pods[i].final = true })
	case p.final && p.deleting && !p.gone:
		t.goesOn(sides[i]+"'s kubelet lets the pod go", func(to *state) { to.pods[i] = pod{gone: true} })
	}
}

// die ends a virt-handler, and the streams through it.
func (s *state) die(i side) {
	s.handlers[i] = handler{}
	s.stream, s.copyLink = false, false
	if i == source {
		s.withdrawn = false
		s.ready, s.loaded, s.ran, s.never = false, false, false, false
	} else {
		s.released = false
	}
}

// faultsOf has the faults of one side.
func (t *turn) faultsOf(i side) {
	s, p := t.s, t.s.pods[i]
	t.fault(handlerDies, sides[i]+"'s virt-handler dies", s.handlers[i].up, func(to *state) { to.die(i) })
	t.fault(qemuDies, sides[i]+"'s QEMU ends by itself", s.alive(i), func(to *state) { to.end(i, true) })
	t.fault(launcherDies, sides[i]+"'s virt-launcher is killed", s.alive(i), func(to *state) { to.end(i, false) })
	t.fault(podDeleted, "somebody deletes the "+sides[i]+" pod", !p.going(), func(to *state) { to.pods[i].deleting = true })
	t.fault(podForced, "somebody deletes the "+sides[i]+" pod by force", !p.gone, func(to *state) { to.pods[i] = pod{gone: true} })
	t.fault(nodeSilent, sides[i]+"'s node falls silent", s.nodes[i] == answers, func(to *state) { to.nodes[i], to.stream, to.copyLink = silent, false, false })
}

func (t *turn) faults() {
	s := t.s
	t.fault(connectionCut, "the connections are cut", s.connected(), func(to *state) {
		to.stream, to.copyLink = false, false
		to.lose()
	})
	t.fault(targetDeaf, "target's QEMU reads nothing more", s.tgt == tgtIncoming && !s.deaf, func(to *state) { to.deaf = true })
	t.fault(targetStuck, "target's QEMU waits for memory", !s.stuck && !s.stream && !s.whole && s.tgt > tgtIncoming && s.tgt < tgtEnded,
		func(to *state) { to.stuck = true })
	t.fault(canceled, "somebody cancels the migration", !s.cancel, func(to *state) { to.cancel = true })
	t.fault(vmiDeleted, "somebody deletes the VMI", !s.vmi.Deleting, func(to *state) { to.vmi.Deleting = true })
	t.fault(oldLeader, "a virt-controller begins to look away", !s.old.looked, func(to *state) {
		to.old = leader{looked: true, sight: s.sight()}
	})
}

// One virt-controller has a true view, the other an old one.
func (t *turn) controller() {
	s := t.s
	for _, w := range t.rules.writes(s.sight()) {
		t.concludes("virt-controller: ", w)
	}
	if s.old.looked && s.old.sight.vmi == s.vmi {
		for _, w := range t.rules.writes(s.old.sight) {
			t.concludes("the old virt-controller: ", w)
		}
	}
}

// concludes writes on condition of the VMI in its view, and then deletes pods. It may die in between.
func (t *turn) concludes(who string, w write) {
	broken := t.breaks(&w)
	t.may(step{name: who + w.by, broken: broken}, func(to *state) { to.vmi = w.vmi })
	for i, deleted := range w.deletes {
		if deleted {
			t.goesOn(who+w.by+", and deletes the "+sides[i]+" pod", func(to *state) {
				to.vmi = w.vmi
				to.pods[i].deleting = to.pods[i].deleting || !to.pods[i].gone
			})
		}
	}
}

// breaks returns the error of a write, or nil.
func (t *turn) breaks(w *write) error {
	seen := t.s.sight()
	sourceSeen := seen.podSeen(source)
	var broken error
	switch {
	case w.letsGo && t.s.mayRun():
		broken = errEnded
	case w.abandons && (t.s.tgt != tgtEnded || t.s.hasRun):
		broken = errAbandoned
	case !w.vmi.Final || t.s.vmi.Final:
	case w.lost && t.s.vmi.PostCopy && !sourceSeen.Exit.Known && !t.s.canRun():
		// In post-copy the source's end without a message ends the VMI, whatever the target has.
	default:
		broken = t.s.endedTooEarly()
	}
	if broken == nil && w.loop == ofVMIs && w.namesOther(t.s) {
		return errClaims
	}
	return broken
}

// namesOther reports whether the VMI would name a claim without the guest's last writes: the copy before the guest has
// run at the target, or the old claim at its end although it has.
func (w *write) namesOther(s *state) bool {
	ends := w.vmi.Final && !s.vmi.Final && !w.lost
	return w.moved && !s.hasRun || w.vmi.Switched && !w.moved || ends && s.hasRun && !s.stale && !w.moved
}

// mayRun reports whether a guest runs, or may at any moment.
func (s *state) mayRun() bool { return s.canRun() || s.tgt == tgtRuns || s.tgt == tgtMarked }

// finish ends the VMI, and with it the migration, in one write.
func finish(r *switchover.Record) { r.Final, r.Failed = true, !r.Completed }

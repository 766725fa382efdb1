package switchover_test

import (
	"fmt"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// The model is one migration of one VMI, with both QEMUs as observed, and all other parts. A state has a fixed size,
// so that it is its own key. QEMU obeys one virt-handler at a time, so a command takes effect in the state in which
// it was decided; a write to the VMI may follow from an older version, and is refused then.

// side is one of the two pods, with its node and its virt-handler.
type side uint8

const (
	source side = iota
	target
)

var sides = [...]string{"source", "target"}

// sourceQEMU is the state of the QEMU in which the guest runs at first.
type sourceQEMU uint8

const (
	srcRuns sourceQEMU = iota
	srcCopies
	// srcCopiesStopped has been told to stop the guest until its memory is sent.
	srcCopiesStopped
	srcPreSwitchover
	srcDevice
	// srcPostCopy is the moment at which the guest still continues here after an error.
	srcPostCopy
	srcPostCopyFirm
	srcPostCopyPaused
	// srcStopped has ended the migration without success, and leaves the guest stopped: it was stopped for the
	// migration, or was to move by post-copy. virt-handler resumes it, unless it is marked as left.
	srcStopped
	srcSent
	// srcBack has begun the migration, and runs the guest.
	srcBack
	srcEnded
)

var sourceNames = [...]string{"runs", "copies", "copies-stopped", "pre-switchover", "device", "post-copy", "post-copy-firm", "post-copy-paused", "stopped", "sent", "back", "ended"}

func (q sourceQEMU) runs() bool { return q == srcRuns || q == srcCopies || q == srcBack }

// answers is QEMU's answer.
func (q sourceQEMU) answers() (runState string, status migrationstatus.Status, postCopyBytes int64) {
	switch q {
	case srcRuns:
		return runstate.Running, migrationstatus.None, 0
	case srcCopies:
		return runstate.Running, migrationstatus.Active, 0
	case srcCopiesStopped:
		return runstate.PausedToMigrate, migrationstatus.Active, 0
	case srcPreSwitchover:
		return "finish-migrate", migrationstatus.PreSwitchover, 0
	case srcDevice:
		return "finish-migrate", migrationstatus.Device, 0
	case srcPostCopy:
		return "finish-migrate", migrationstatus.PostCopyActive, 0
	case srcPostCopyFirm:
		return "finish-migrate", migrationstatus.PostCopyActive, 1
	case srcPostCopyPaused:
		return "finish-migrate", migrationstatus.PostCopyPaused, 1
	case srcStopped:
		return runstate.PausedToMigrate, migrationstatus.Failed, 0
	case srcSent:
		return runstate.PostMigrate, migrationstatus.Completed, 0
	}
	return runstate.Running, migrationstatus.Failed, 0
}

// targetQEMU is the state of the QEMU that the guest is to reach.
type targetQEMU uint8

const (
	tgtNotStarted targetQEMU = iota
	tgtIncoming
	tgtLoaded
	tgtMarked
	tgtRuns
	tgtEnded
)

var targetNames = [...]string{"not started", "incoming", "loaded", "marked", "runs", "ended"}

// node is the state of a node.
type node uint8

const (
	answers node = iota
	silent
	// fenced means that nothing runs on it, and that somebody has declared so.
	fenced
)

// pod is a stored launcher pod.
type pod struct {
	gone, final, deleting bool
}

func (p pod) going() bool { return p.gone || p.deleting }

// handler is a node's virt-handler.
type handler struct {
	up   bool
	view switchover.Record
	// Its received messages: Ready, Loaded, Ran and Never at the source, Released at the target.
	ready, loaded, ran, never, released bool
	// streams: it has begun the migration. unmarked is TargetFacts.Unmarked.
	streams, unmarked bool
	// asked is the source QEMU's state when it was asked for its migration: QEMU runs on meanwhile.
	asked sourceQEMU
	// exit is QEMU's end as far as virt-handler knows.
	exit switchover.Exit
}

// leader is a virt-controller with old views.
type leader struct {
	looked bool
	sight  sight
}

// state is the whole model.
type state struct {
	vmi switchover.Record
	// cancel: the VirtualMachineInstanceMigration is being deleted.
	cancel bool
	src    sourceQEMU
	tgt    targetQEMU
	// whole: the target has all of the guest's memory. byPostCopy: the source was told to switch.
	whole, byPostCopy bool
	// left: QEMU at the source has the marker that its guest never continues there. stopped: it was told to stop the guest.
	left, stopped bool
	// deaf: QEMU at the target reads nothing more of the guest's state.
	deaf bool
	// doomed: QEMU at the target reports that it will be killed; killing: virt-launcher was told.
	doomed, killing bool
	// hasRun: the target has run the guest. stale: the guest has continued at the source since the target loaded it.
	hasRun, stale bool
	// stream: the connection between the QEMUs is up. withdrawn: the source's virt-handler reads the stream to its end.
	stream, withdrawn bool
	// stuck: QEMU at the target answers nothing, since it waits for memory. listens: it takes another connection.
	stuck, listens bool
	// copies are those of its disks, and copyLink their connection. same: both sides have the guest's writes.
	copies   copies
	copyLink bool
	same     bool
	exits    [2]switchover.Exit
	pods     [2]pod
	nodes    [2]node
	handlers [2]handler
	// Messages between the virt-handlers.
	ready, loaded, released, ran, never bool
	old                                 leader
	// second is a second target pod: 1 when it exists, 2 when its QEMU listens, 3 when that has ended.
	second uint8
	faults int8
}

func (s *state) String() string {
	text := fmt.Sprintf("source %s, target %s", sourceNames[s.src], targetNames[s.tgt])
	if s.copies != cpNone {
		text += ", disks " + copyNames[s.copies]
	}
	if s.tgt > tgtIncoming && s.tgt < tgtEnded && !s.whole {
		text += " in part"
	}
	r := s.vmi
	for _, mark := range []struct {
		name string
		set  bool
	}{
		{"started", r.Started}, {"failed", r.Failed}, {"completed", r.Completed}, {"abort", r.AbortRequested},
		{"abort failed", r.AbortFailed}, {"source dropped", !r.SourceNamed}, {"target dropped", !r.TargetNamed},
		{"switched", r.Switched}, {"deleting", r.Deleting}, {"final", r.Final}, {"cut", !s.stream && s.src != srcRuns && s.src != srcEnded},
		{"source pod going", s.pods[source].going()}, {"target pod going", s.pods[target].going()},
		{"source handler down", !s.handlers[source].up}, {"target handler down", !s.handlers[target].up},
		{"source node silent", s.nodes[source] == silent}, {"target node silent", s.nodes[target] == silent},
		{"the target reads nothing", s.deaf}, {"the target answers nothing", s.stuck}, {"stale", s.stale}, {"to be killed", s.doomed && s.tgt != tgtEnded}, {"second pod", s.second > 0},
	} {
		if mark.set {
			text += ", " + mark.name
		}
	}
	return text
}

func (s *state) initial(sc *scenario) {
	*s = state{faults: sc.faults}
	s.vmi = switchover.Record{Current: true, SourceNamed: true, TargetNamed: true}
	if sc.ready {
		s.vmi.Addressed, s.tgt = true, tgtIncoming
	}
	for i := range s.handlers {
		s.handlers[i] = handler{up: true, view: s.vmi}
	}
	s.handlers[target].unmarked = true
	if sc.disks {
		s.copies = cpMissing
	}
}

// alive reports whether a pod's processes run.
func (s *state) alive(i side) bool {
	if i == source {
		return s.src != srcEnded
	}
	return s.tgt != tgtEnded
}

// connected reports whether the virt-handlers can communicate.
func (s *state) connected() bool {
	return s.handlers[source].up && s.handlers[target].up && s.nodes[source] == answers && s.nodes[target] == answers
}

// end ends a pod's processes. With word, virt-launcher reports how.
func (s *state) end(i side, word bool) {
	exit := switchover.Exit{Known: word}
	if i == source {
		exit.Sent, exit.Ran = word && s.src == srcSent, word
		s.src = srcEnded
	} else {
		exit.Ran = word && s.tgt == tgtRuns
		s.tgt, s.doomed, s.killing, s.deaf, s.stuck, s.listens = tgtEnded, false, false, false, false, false
	}
	s.exits[i], s.stream, s.copyLink = exit, false, false
	if s.handlers[i].up {
		s.handlers[i].exit = exit
	}
}

// exitSeen is a virt-handler's knowledge of its QEMU's end.
func (s *state) exitSeen(i side) switchover.Exit {
	if p := s.pods[i]; p.final && !p.gone && s.nodes[i] == answers {
		return s.exits[i]
	}
	return s.handlers[i].exit
}

func (s *state) sourceFacts() switchover.SourceFacts {
	h := s.handlers[source]
	f := switchover.SourceFacts{
		Record: h.view, Process: switchover.ProcessRuns, Begun: s.src != srcRuns, Left: s.left, Streams: h.streams, Settled: true, Mirrors: s.copies.answers(),
		Connected: s.connected(), Ready: h.ready, Loaded: h.loaded, Ran: h.ran, Never: h.never,
	}
	_, f.Status, f.PostCopyBytes = h.asked.answers()
	f.StreamLost = !s.stream && s.shielded()
	f.RunState, _, _ = s.src.answers()
	if s.src == srcStopped && s.left {
		f.RunState = runstate.PostMigrate
	}
	if s.src == srcEnded {
		f.Process, f.Exit = switchover.ProcessEnded, s.exitSeen(source)
	}
	return f
}

func (s *state) targetFacts() switchover.TargetFacts {
	h := s.handlers[target]
	f := switchover.TargetFacts{
		Record: h.view, Named: true, Terminating: s.nodes[target] == answers && s.pods[target].going(), Process: switchover.ProcessRuns,
		Released: h.released, Unmarked: h.unmarked, Doomed: s.doomed, Marked: s.tgt == tgtMarked || s.tgt == tgtRuns, RunState: "paused",
	}
	switch {
	case s.whole:
		f.Status = migrationstatus.Completed
	case s.src == srcPostCopyPaused || !s.stream:
		f.Status = migrationstatus.PostCopyPaused
	default:
		f.Status = migrationstatus.PostCopyActive
	}
	switch s.tgt {
	case tgtNotStarted:
		f.Process = switchover.ProcessNotStarted
	case tgtIncoming:
		f.RunState, f.Status = runstate.InMigrate, migrationstatus.Active
	case tgtRuns:
		f.RunState = runstate.Running
	case tgtEnded:
		f.Process, f.Exit = switchover.ProcessEnded, s.exitSeen(target)
	}
	if s.stuck {
		f.Stuck, f.HasRun, f.Process = true, s.tgt == tgtRuns, switchover.ProcessUnknown
		f.Status, f.RunState, f.Marked, f.Doomed, f.Unmarked = "", "", false, false, false
	}
	return f
}

// shielded reports whether virt-handler keeps QEMU at the source from noticing that the stream of its post-copy is cut.
func (s *state) shielded() bool {
	h := s.handlers[source]
	return h.up && h.streams && !s.left && (s.src == srcPostCopy || s.src == srcPostCopyFirm)
}

// canRun reports whether QEMU at the source runs the guest, or virt-handler may resume it at any moment.
func (s *state) canRun() bool { return s.src.runs() || s.src == srcStopped && !s.left }

// goBack ends the migration without success at a moment at which QEMU keeps the guest.
func (s *state) goBack() {
	s.src, s.stream, s.withdrawn = srcBack, false, false
	if s.stopped || s.byPostCopy {
		s.src = srcStopped
	}
}

// overdue is more than a virt-handler waits for in any state in which the guest is stopped.
const overdue = time.Hour

// limits are those of the migration, with the means to converge of its scenario.
func (sc *scenario) limits() switchover.Limits {
	return switchover.Limits{Completion: time.Minute, Stall: time.Minute, PostCopy: sc.postCopy, Pause: sc.pause}
}

// slow is a migration that takes too long although it goes on.
var slow = switchover.Progress{Last: switchover.Sample{Elapsed: overdue, Transferred: 1}, Moved: overdue}

// endedTooEarly returns the error of ending the VMI now: a guest runs with all of its memory, or the target has all of
// one that the source has released.
func (s *state) endedTooEarly() error {
	whole := s.whole && (s.tgt == tgtRuns || s.tgt == tgtMarked || s.tgt == tgtLoaded && s.exits[source].Sent)
	if s.vmi.PostCopy && s.src == srcEnded && !s.exits[source].Sent {
		// The target may have all of it, without the source's knowledge: nobody can tell.
		whole = false
	}
	if !s.vmi.Deleting && (s.canRun() || whole) {
		return errEnded
	}
	return nil
}

// takesRecovery reports whether the target's QEMU listens again when it is told so.
func (s *state) takesRecovery() bool {
	return !s.listens && s.tgt > tgtIncoming && !s.whole && (!s.stream || s.src == srcPostCopyPaused)
}

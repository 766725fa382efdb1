package switchover_test

import (
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// atSource returns Drydock's rules with another view or decision at the source.
func atSource(see func(*switchover.SourceFacts), do func(switchover.SourceFacts, *switchover.SourceStep)) rules {
	r := drydocks
	r.source = func(f switchover.SourceFacts) switchover.SourceStep {
		if see != nil {
			see(&f)
		}
		d := switchover.DecideSource(f)
		if do != nil {
			do(f, &d)
		}
		return d
	}
	return r
}

func atTarget(see func(*switchover.TargetFacts), do func(switchover.TargetFacts, *switchover.TargetStep)) rules {
	r := drydocks
	r.target = func(f switchover.TargetFacts) switchover.TargetStep {
		if see != nil {
			see(&f)
		}
		d := switchover.DecideTarget(f)
		if do != nil {
			do(f, &d)
		}
		return d
	}
	return r
}

// atController returns Drydock's rules with other facts for the loop of VMIs.
func atController(see func(*switchover.ControllerFacts)) rules {
	r := drydocks
	r.writes = func(v sight) []write {
		all := slices.Clone(drydocks.writes(v))
		f := switchover.ControllerFacts{Record: v.vmi, Source: v.podSeen(source), Target: v.podSeen(target)}
		see(&f)
		d := switchover.DecideController(f)
		for i := range all {
			if w := &all[i]; w.loop == ofVMIs {
				w.vmi, w.lost, w.letsGo = v.vmi, d.Action == switchover.EndAsLost, false
				w.by = string(d.Action)
				if change := controllerWrites[d.Action]; change != nil {
					change(&w.vmi)
				}
			}
		}
		return all
	}
	return r
}

// atLoops changes the writes of virt-controller's loops.
func atLoops(do func(sight, *write)) rules {
	r := drydocks
	r.writes = func(v sight) []write {
		all := slices.Clone(drydocks.writes(v))
		for i := range all {
			do(v, &all[i])
		}
		return all
	}
	return r
}

func dropTheOtherPod(v sight, w *write) {
	if v.vmi.SourceNamed && !w.vmi.SourceNamed {
		w.vmi.SourceNamed, w.vmi.TargetNamed = true, false
	}
}

func letGoWithoutTheOtherPod(v sight, w *write) {
	w.letsGo = w.letsGo || v.vmi.Deleting && v.podSeen(v.current()).State == switchover.PodEnded
}

func switchBeforeTheGuest(v sight, w *write) {
	w.vmi.Switched = w.vmi.Switched || v.vmi.Started
}

func abandonWithoutTheTargetsEnd(v sight, w *write) {
	w.abandons = w.abandons || w.loop == ofMigrations && v.quiet && v.vmi.AbortRequested && !v.vmi.Failed
}

var controllerWrites = map[switchover.ControllerAction]func(*switchover.Record){
	switchover.ControllerRecordFailed: func(r *switchover.Record) { r.Failed = true },
	switchover.RecordAbort:            func(r *switchover.Record) { r.AbortRequested = true },
	switchover.DropSource:             func(r *switchover.Record) { r.SourceNamed = false },
	switchover.DropTarget:             func(r *switchover.Record) { r.TargetNamed = false },
	switchover.SwitchNode:             func(r *switchover.Record) { r.Switched = true },
	switchover.EndAsSource:            finish,
	switchover.EndAsTarget:            finish,
	switchover.EndAsLost:              finish,
}

func isSent(f switchover.SourceFacts) bool {
	return f.Status == migrationstatus.Completed && f.RunState == runstate.PostMigrate
}

func runAtTheEndOfTheStream(f *switchover.TargetFacts) { f.Released = true }

func resumeAfterAWhile(f switchover.SourceFacts, d *switchover.SourceStep) {
	if isSent(f) && d.Action == switchover.SourceWait && f.Stopped > 0 {
		d.Action = switchover.Resume
	}
}

func resumeOnAbort(f switchover.SourceFacts, d *switchover.SourceStep) {
	if isSent(f) && f.Record.AbortRequested {
		d.Action = switchover.Resume
	}
}

func resumeAfterTheEnd(f switchover.SourceFacts, d *switchover.SourceStep) {
	if isSent(f) && f.Record.Final && f.Record.Failed {
		d.Action = switchover.Resume
	}
}

func resumeBeforeTheRecord(f switchover.SourceFacts, d *switchover.SourceStep) {
	if isSent(f) && d.Action == switchover.RecordFailed {
		d.Action = switchover.Resume
	}
}

func neverAsSoonAsUnwanted(_ switchover.TargetFacts, d *switchover.TargetStep) {
	if d.Action == switchover.Kill {
		d.Tell = switchover.Never
	}
}

func everyPodIsNamed(f *switchover.TargetFacts) { f.Named, f.Record.Current = true, true }

func everyEndIsNever(f *switchover.TargetFacts) { f.Unmarked = true }

func forgetTheKill(f *switchover.TargetFacts) { f.Doomed = false }

func ranWithoutAMark(f *switchover.TargetFacts) { f.Marked = false }

func releaseBeforeTheSwitchover(f switchover.SourceFacts, d *switchover.SourceStep) {
	if f.Status == migrationstatus.PreSwitchover {
		d.Tell = switchover.Released
	}
}

func believePostCopysStatus(f *switchover.SourceFacts) { f.PostCopyBytes = 1 }

func forgetTheMarkOfPostCopy(f *switchover.SourceFacts) {
	if f.Status.PostCopy() {
		f.Left = true
	}
}

func everyTargetHasLoaded(f *switchover.SourceFacts) { f.Loaded = true }

func forgetTheStopOfPostCopy(f *switchover.SourceFacts) {
	if f.Status.PostCopy() {
		f.Stopped = 0
	}
}

func forgetTheStopOfTheHandover(f *switchover.SourceFacts) {
	if f.Status == migrationstatus.Device {
		f.Stopped = 0
	}
}

func forgetThatTheGuestHasLeft(f *switchover.SourceFacts) {
	if f.Record.AbortRequested {
		f.Left = false
	}
}

func cancelInPostCopy(_ switchover.SourceFacts, d *switchover.SourceStep) {
	if d.Action == switchover.Withdraw {
		d.Action = switchover.Cancel
	}
}

// converging returns Drydock's rules with another decision about a migration that takes long.
func converging(converge func(switchover.Progress, switchover.Limits, time.Duration) switchover.Convergence) rules {
	r := drydocks
	r.converge = converge
	return r
}

func neverStoppedForTooLong(p switchover.Progress, l switchover.Limits, _ time.Duration) switchover.Convergence {
	return switchover.DecideConvergence(p, l, 0)
}

func stoppedSinceItsTimeIsOver(p switchover.Progress, l switchover.Limits, _ time.Duration) switchover.Convergence {
	return switchover.DecideConvergence(p, l, p.Last.Elapsed-l.Completion)
}

func beginWithoutARecord(f *switchover.SourceFacts) { f.Record.Started = true }

func endWithTheSourcePod(f *switchover.ControllerFacts) { f.Source.Exit.Sent = false }

func silenceIsNever(f *switchover.ControllerFacts) { f.Target.Exit.Known = true }

func silenceIsRelease(f *switchover.ControllerFacts) {
	if f.Source.State == switchover.PodEnded && !f.Source.Exit.Known {
		f.Source.Exit = switchover.Exit{Known: true, Sent: true}
	}
}

func failWhatHasStarted(f *switchover.ControllerFacts) {
	if f.Source.State != switchover.PodEnded {
		f.Record.Started = false
	}
}

func endWithoutASecondLook(f *switchover.ControllerFacts) {
	f.Record.AbortFailed = f.Record.AbortFailed || f.Record.AbortRequested
}

func readyIsTheSame(_ switchover.SourceFacts, d *switchover.SourceStep) {
	if d.Action == switchover.FinishMirrors {
		d.Action = switchover.ContinueSwitchover
	}
}

func finishedIsReady(f *switchover.SourceFacts) {
	if f.Mirrors.State == switchover.MirrorsFinished && f.Status == migrationstatus.Active {
		f.Mirrors.State = switchover.MirrorsReady
	}
}

func finishWhileTheGuestRuns(f switchover.SourceFacts, d *switchover.SourceStep) {
	if f.Status == migrationstatus.Active && d.Action == switchover.SourceWait {
		d.Action = switchover.FinishMirrors
	}
}

func leaveAloneWhatAnswersNothing(f *switchover.TargetFacts) { f.Stuck = false }

func forgetTheCopies(f *switchover.SourceFacts) { f.Mirrors.Left = false }

// The exploration must find two guests, a guest with old memory, or one that is ended, for each wrong rule.
func TestWhatIsWrongIsFound(t *testing.T) {
	tests := map[string]struct {
		rules rules
		sc    scenario
		want  error
	}{
		"the target runs at the end of the stream": {
			atTarget(runAtTheEndOfTheStream, nil), scenario{ready: true, prompt: true, faults: 1, kinds: connectionCut}, errTwoGuests},
		"the source goes on after a while": {
			atSource(nil, resumeAfterAWhile), scenario{ready: true, prompt: true}, errTwoGuests},
		"the source goes on for an abort": {
			atSource(nil, resumeOnAbort), scenario{ready: true, prompt: true, faults: 1, kinds: canceled}, errTwoGuests},
		"the source goes on when the VMI has ended": {
			atSource(nil, resumeAfterTheEnd), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errOlder},
		"the source goes on before failed is recorded": {
			atSource(nil, resumeBeforeTheRecord), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errEnded},
		"Never is told of a QEMU that is to end": {
			atTarget(nil, neverAsSoonAsUnwanted), scenario{ready: true, prompt: true, trusting: true, faults: 1, kinds: canceled}, errTwoGuests},
		"Never is told of an end that nobody knows": {
			atTarget(everyEndIsNever, nil), scenario{ready: true, prompt: true, trusting: true, faults: 1, kinds: everything}, errOlder},
		"a second target pod speaks for the first": {
			atTarget(everyPodIsNamed, nil), scenario{ready: true, prompt: true, trusting: true, faults: 2, kinds: podForced | secondPod}, errTwoGuests},
		"the next virt-handler has a guest run that is being killed": {
			atTarget(forgetTheKill, nil), scenario{ready: true, prompt: true, keeps: true, faults: 2, kinds: handlerDies | canceled}, errLost},
		"the target forgets that it was let run": {
			atTarget(ranWithoutAMark, nil), scenario{ready: true, prompt: true}, errStuck},
		"Released is told before the switchover": {
			atSource(nil, releaseBeforeTheSwitchover), scenario{ready: true, prompt: true, trusting: true, faults: 1, kinds: connectionCut}, errTwoGuests},
		"Released is told as soon as the status is postcopy-active": {
			atSource(believePostCopysStatus, nil), scenario{ready: true, prompt: true, trusting: true, postCopy: true, faults: 1, kinds: connectionCut}, errStuck},
		"Released is told of a post-copy before the target has loaded the guest": {
			atSource(everyTargetHasLoaded, nil), scenario{ready: true, prompt: true, postCopy: true, faults: 1, kinds: targetDeaf}, errStuck},
		"a post-copy may take any time before its first page": {
			atSource(forgetTheStopOfPostCopy, nil), scenario{ready: true, prompt: true, postCopy: true, faults: 1, kinds: targetDeaf}, errStuck},
		"a handover may take any time": {
			atSource(forgetTheStopOfTheHandover, nil), scenario{ready: true, prompt: true, faults: 1, kinds: targetDeaf}, errStuck},
		"a post-copy is canceled whose guest may run at the target": {
			atSource(forgetThatTheGuestHasLeft, nil), scenario{ready: true, prompt: true, postCopy: true, faults: 1, kinds: canceled}, errStuck},
		"a post-copy is canceled, which QEMU refuses": {
			atSource(nil, cancelInPostCopy), scenario{ready: true, prompt: true, postCopy: true, faults: 1, kinds: connectionCut}, errStuck},
		"a guest may be stopped for any time until it is sent": {
			converging(neverStoppedForTooLong), scenario{ready: true, prompt: true, pause: true, faults: 1, kinds: targetDeaf}, errStuck},
		"a guest counts as stopped since its time was over": {
			converging(stoppedSinceItsTimeIsOver), scenario{ready: true, prompt: true, pause: true}, errNotMoved},
		"Released is told of a post-copy before QEMU is marked": {
			atSource(forgetTheMarkOfPostCopy, nil), scenario{ready: true, prompt: true, trusting: true, postCopy: true, faults: 1, kinds: handlerDies}, errTwoGuests},
		"QEMU is asked for its run state before its migration": {
			drydocks, scenario{ready: true, prompt: true, lateAnswers: true, runStateFirst: true, faults: 1, kinds: podForced}, errEnded},
		"the source begins before its record": {
			atSource(beginWithoutARecord, nil), scenario{ready: true, prompt: true, faults: 1, kinds: canceled}, errTwoEnds},
		"the end of the source pod is that of the VMI": {
			atController(endWithTheSourcePod), scenario{ready: true, prompt: true}, errEnded},
		"a target pod that ends without a word never ran": {
			atController(silenceIsNever), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errOlder},
		"a source pod that ends without a word has sent the guest": {
			atController(silenceIsRelease), scenario{ready: true, prompt: true, faults: 2, kinds: connectionCut | launcherDies | handlerDies}, errOlder},
		"a disk that is copied is taken for the same": {
			atSource(nil, readyIsTheSame), scenario{ready: true, prompt: true, disks: true}, errOtherDisks},
		"the copies are finished while the guest runs": {
			atSource(finishedIsReady, finishWhileTheGuestRuns), scenario{ready: true, prompt: true, disks: true}, errOtherDisks},
		"a target that waits for memory is left alone": {
			atTarget(leaveAloneWhatAnswersNothing, nil), scenario{ready: true, prompt: true, postCopy: true, faults: 2, kinds: connectionCut | targetStuck}, errStuck},
		"what is left of copies is forgotten": {
			atSource(forgetTheCopies, nil), scenario{ready: true, prompt: true, disks: true, faults: 1, kinds: canceled}, errStuck},
		"virt-controller fails what has begun": {
			atController(failWhatHasStarted), scenario{ready: true, prompt: true, faults: 1, kinds: vmiDeleted}, errTwoEnds},
		"virt-controller takes the target out of activePods instead of the source": {
			atLoops(dropTheOtherPod), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errEnded},
		"virt-controller lets a VMI go whose other pod runs its guest": {
			atLoops(letGoWithoutTheOtherPod), scenario{ready: true, prompt: true, faults: 1, kinds: vmiDeleted}, errEnded},
		"virt-controller switches the node before the guest": {
			atLoops(switchBeforeTheGuest), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errClaims},
		"virt-controller says that a migration has failed whose target may run": {
			atLoops(abandonWithoutTheTargetsEnd), scenario{ready: true, prompt: true, faults: 1, kinds: handlerDies}, errAbandoned},
		"virt-controller does not wait for the source's answer": {
			atController(endWithoutASecondLook), scenario{ready: true, prompt: true, faults: 1, kinds: everything}, errEnded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.sc.rules = test.rules
			finds(t, &test.sc, test.want)
		})
	}
}

package switchover

import (
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// TargetFacts is the input of DecideTarget.
type TargetFacts struct {
	Record Record
	// Named means that activePods has the pod's UID: another pod may have its name.
	Named       bool
	Terminating bool // the pod is being deleted, or is gone

	Process Process
	Exit    Exit
	// Status is the result of query-migrate, RunState that of query-status, asked after it.
	RunState string
	Status   migrationstatus.Status
	Marked   bool // QEMU has the ran marker: the guest may run at any time
	Doomed   bool // a virt-handler has set the doomed marker, and begun to kill QEMU
	// Unmarked means that only this virt-handler has used the monitor since it saw no ran marker, and that it has not begun
	// to set the marker. It stays true after QEMU's end.
	Unmarked bool
	Released bool // over any control connection
	// Stuck means that QEMU answers nothing and virt-launcher says that the stream of its post-copy is broken: QEMU waits for
	// memory. Then Process, RunState, Status, Marked and Doomed are unknown; HasRun is whether the guest's CPUs were started.
	Stuck, HasRun bool
}

// TargetAction is an action at the target.
type TargetAction string

// The actions at the target.
const (
	TargetWait TargetAction = "wait" // until a fact changes
	// StartIncoming prepares disks and network and starts QEMU, stopped and listening.
	StartIncoming TargetAction = "start QEMU for the incoming guest"
	ReportReady   TargetAction = "report that the target is ready" // writes targetNodeAddress
	MarkAndRun    TargetAction = "mark and run"                    // sets the ran marker, then cont
	Run           TargetAction = "run"                             // cont
	// RecoverIncoming listens for the new stream of a post-copy (migrate-recover).
	RecoverIncoming TargetAction = "listen for the rest of the post-copy"
	// Kill ends a QEMU that has not run. It sets the doomed marker first, so that no virt-handler runs the guest.
	Kill TargetAction = "kill"
	// ReportCompleted writes targetNodeDomainDetected, targetNodeDomainReadyTimestamp, completed and endTimestamp.
	ReportCompleted TargetAction = "report the completed migration"
)

// TargetStep is the next step at the target.
type TargetStep struct {
	Action TargetAction
	Tell   Fact // to the source, besides the action
}

// DecideTarget returns the next step at the target.
func DecideTarget(f TargetFacts) TargetStep {
	ours := f.Record.Current && f.Named
	switch {
	case f.Stuck && f.Process != ProcessEnded:
		return f.stuck(ours)
	case f.Process == ProcessUnknown:
		return TargetStep{Action: TargetWait}
	case !ours:
		return f.foreign()
	case f.Process == ProcessEnded:
		return f.ended()
	case f.Process == ProcessNotStarted:
		if f.wanted() {
			return TargetStep{Action: StartIncoming}
		}
		return TargetStep{Action: Kill}
	case f.mayHaveRun():
		return f.run()
	case f.Doomed:
		return TargetStep{Action: Kill}
	case f.arrived():
		return f.loaded()
	case !f.wanted():
		return TargetStep{Action: Kill}
	}
	return f.incoming()
}

// foreign sends no fact: one pod's QEMU says nothing about another's.
func (f *TargetFacts) foreign() TargetStep {
	if f.Terminating && f.Process == ProcessRuns && !f.mayHaveRun() {
		return TargetStep{Action: Kill}
	}
	return TargetStep{Action: TargetWait}
}

// Taken returns the step after MarkAndRun has succeeded on f.
func Taken(f TargetFacts) TargetStep {
	f.Marked, f.RunState = true, runstate.Running
	return DecideTarget(f)
}

func (f *TargetFacts) wanted() bool {
	r := f.Record
	return !r.Failed && !r.Completed && !r.Final && (f.sourceDecides() || !f.Terminating && !r.AbortRequested && !r.Deleting)
}

// sourceDecides reports whether QEMU's end may cost the guest: in a post-copy, an older source can't resume it after the
// stream has broken. So the source withdraws an unwanted guest, and records the failure.
func (f *TargetFacts) sourceDecides() bool {
	return (f.Record.PostCopy || f.Status.PostCopy()) && f.Record.SourceNamed && !f.Released
}

func (f *TargetFacts) mayHaveRun() bool {
	return f.Process == ProcessRuns && (f.Marked || f.runs())
}

func (f *TargetFacts) runs() bool { return runstate.Of(f.RunState).Outlook == runstate.Runs }

// arrived reports whether QEMU has everything that the guest needs to run. QEMU leaves the run state inmigrate before the
// migration is completed.
func (f *TargetFacts) arrived() bool {
	return f.RunState != runstate.InMigrate && (f.Status == migrationstatus.Completed || f.Status.PostCopy())
}

func (f *TargetFacts) incoming() TargetStep {
	if f.RunState != runstate.InMigrate {
		return TargetStep{Action: TargetWait}
	}
	if !f.Record.Addressed {
		return TargetStep{Action: ReportReady, Tell: Ready}
	}
	return TargetStep{Action: TargetWait, Tell: Ready}
}

// loaded handles a guest that has arrived and has not run. Released wins over an abort: the source has released the guest.
// In a post-copy the source must first be told that the guest is Loaded.
func (f *TargetFacts) loaded() TargetStep {
	r := f.Record
	switch {
	case r.Failed, r.Final:
		return TargetStep{Action: Kill}
	case f.sourceDecides() && (f.Terminating || r.Deleting || r.AbortRequested):
		// The source withdraws it: it must not release the guest to a pod that ends.
		return TargetStep{Action: TargetWait}
	case f.sourceDecides():
		return TargetStep{Action: TargetWait, Tell: Loaded}
	case (f.Terminating || r.Deleting) && r.SourceNamed:
		// The guest continues at the source, which ends it.
		return TargetStep{Action: Kill}
	case f.Released, !r.SourceNamed:
		return TargetStep{Action: MarkAndRun}
	case r.AbortRequested:
		return TargetStep{Action: Kill}
	}
	return TargetStep{Action: TargetWait, Tell: Ready}
}

func (f *TargetFacts) run() TargetStep {
	r := f.Record
	stopped := runstate.Of(f.RunState).Outlook == runstate.Waits
	switch {
	case r.Final, r.Completed && stopped:
		// The migration is over, and a user may have paused the guest.
		return TargetStep{Action: TargetWait}
	case stopped:
		return TargetStep{Action: Run}
	case f.Status == migrationstatus.PostCopyPaused:
		return TargetStep{Action: RecoverIncoming, Tell: Ran}
	case f.Status == migrationstatus.Completed && !r.Completed:
		return TargetStep{Action: ReportCompleted, Tell: Ran}
	}
	return TargetStep{Action: TargetWait, Tell: Ran}
}

// stuck handles a QEMU that waits for memory of its guest: nothing else can be done with it before it takes another stream.
// It may always listen for one, since the source sends the rest only of a guest that never continues there.
func (f *TargetFacts) stuck(ours bool) TargetStep {
	step := TargetStep{Action: TargetWait}
	if !ours || f.Record.Final {
		return step
	}
	if f.HasRun {
		step.Tell = Ran
	}
	if f.HasRun || !f.Record.Failed {
		step.Action = RecoverIncoming
	}
	return step
}

// Without an exit, a virt-handler that has not run the guest knows that it never ran.
func (f *TargetFacts) ended() TargetStep {
	switch {
	case f.Exit.ran():
		if f.Record.Completed || f.Record.Final {
			return TargetStep{Action: TargetWait, Tell: Ran}
		}
		return TargetStep{Action: ReportCompleted, Tell: Ran}
	case f.Exit.Known, f.Unmarked:
		return TargetStep{Action: TargetWait, Tell: Never}
	}
	return TargetStep{Action: TargetWait}
}

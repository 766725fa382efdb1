package switchover

import (
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// TargetFacts is what virt-handler at the target knows.
type TargetFacts struct {
	Record Record
	// Named means that activePods names this very pod, by its UID. Another pod of the same name
	// is not this migration's.
	Named bool
	// Terminating means that the pod is being deleted, or is gone.
	Terminating bool

	// Process is that of the target pod; Exit is how it ended.
	Process Process
	Exit    Exit
	// Status is that of QEMU's incoming migration (query-migrate), and RunState QEMU's own
	// (query-status), asked after it.
	RunState string
	Status   migrationstatus.Status
	// Marked means that QEMU has the ran marker: from then on it may run at any time.
	Marked bool
	// Doomed means that an earlier virt-handler has begun to kill QEMU: it has said so in QEMU
	// first.
	Doomed bool
	// Unmarked means that this virt-handler has had QEMU's monitor to itself from a moment
	// at which the ran marker was not set, and has not begun to set it. It keeps that fact when
	// QEMU has ended.
	Unmarked bool

	// Released is what came over any control connection.
	Released bool
}

// TargetAction is what virt-handler does at the target.
type TargetAction string

const (
	// TargetWait means that nothing is to be done until a fact changes.
	TargetWait TargetAction = "wait"
	// StartIncoming prepares disks and network and starts QEMU, stopped and listening.
	StartIncoming TargetAction = "start QEMU for the incoming guest"
	// ReportReady writes targetNodeAddress.
	ReportReady TargetAction = "report that the target is ready"
	// MarkAndRun sets the ran marker, then has the guest run (cont).
	MarkAndRun TargetAction = "mark and run"
	// Run has the guest run (cont).
	Run TargetAction = "run"
	// RecoverIncoming listens for the new stream of a post-copy (migrate-recover).
	RecoverIncoming TargetAction = "listen for the rest of the post-copy"
	// Kill ends QEMU, which has not run, at once. It says so in QEMU before (Doomed), so that
	// neither this virt-handler nor the next one has a guest run that is about to be ended.
	Kill TargetAction = "kill"
	// ReportCompleted writes targetNodeDomainDetected, targetNodeDomainReadyTimestamp, completed
	// and endTimestamp.
	ReportCompleted TargetAction = "report the completed migration"
)

// TargetStep is what virt-handler at the target does next.
type TargetStep struct {
	Action TargetAction
	// Tell is told to the source, beside the action.
	Tell Fact
}

// DecideTarget returns the next step at the target.
func DecideTarget(f TargetFacts) TargetStep {
	ours := f.Record.Current && f.Named
	switch {
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

// Taken returns the step at a target whose QEMU has marked and run its guest since f was seen.
func Taken(f TargetFacts) TargetStep {
	f.Marked, f.RunState = true, runstate.Running
	return DecideTarget(f)
}

// foreign is what is done about a pod that is not this migration's, or not any more, or that
// the VMI that was seen does not name yet: nothing, until somebody deletes it. Nothing is told:
// what one pod's QEMU did says nothing about another's.
func (f *TargetFacts) foreign() TargetStep {
	if f.Terminating && f.Process == ProcessRuns && !f.mayHaveRun() {
		return TargetStep{Action: Kill}
	}
	return TargetStep{Action: TargetWait}
}

// wanted reports whether the guest may still come.
func (f *TargetFacts) wanted() bool {
	r := f.Record
	return !f.Terminating && !r.Failed && !r.Completed && !r.AbortRequested && !r.Deleting && !r.Final
}

// mayHaveRun reports whether the guest may have run in this QEMU.
func (f *TargetFacts) mayHaveRun() bool {
	return f.Process == ProcessRuns && (f.Marked || f.runs())
}

func (f *TargetFacts) runs() bool { return runstate.Of(f.RunState).Outlook == runstate.Runs }

// arrived reports whether all that the guest needs to run is in QEMU. QEMU leaves the run state
// inmigrate before it says that the migration is completed.
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

// loaded is what is done with a guest that has arrived and has not run. Where an abort and
// the source's release meet, the release counts: the source has let go.
func (f *TargetFacts) loaded() TargetStep {
	r := f.Record
	switch {
	case r.Failed, r.Final:
		return TargetStep{Action: Kill}
	case (f.Terminating || r.Deleting) && r.SourceNamed:
		// The source goes on, and takes the guest to its end.
		return TargetStep{Action: Kill}
	case f.Released, !r.SourceNamed:
		return TargetStep{Action: MarkAndRun}
	case r.AbortRequested:
		return TargetStep{Action: Kill}
	}
	return TargetStep{Action: TargetWait, Tell: Ready}
}

// run is what is done with a guest that runs here, or may.
func (f *TargetFacts) run() TargetStep {
	r := f.Record
	stopped := runstate.Of(f.RunState).Outlook == runstate.Waits
	switch {
	case r.Final, r.Completed && stopped:
		// The guest is as any other: its user may have paused it.
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

// ended is what follows from the end of QEMU here. Without virt-launcher's word, a
// virt-handler that has not let it run knows that it has not.
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

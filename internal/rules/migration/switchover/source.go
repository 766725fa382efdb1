package switchover

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// SourceFacts is the input of DecideSource.
type SourceFacts struct {
	Record Record

	Process Process
	Exit    Exit
	// Status is the result of query-migrate, PostCopyBytes its ram.postcopy-bytes. RunState is the result of query-status,
	// which is sent after it: a migration that has just sent the guest must not count as failed.
	RunState      string
	Status        migrationstatus.Status
	PostCopyBytes int64
	Error         string // query-migrate's error-desc, unfiltered
	// Begun means that QEMU has this migration's begun marker. No decision is made between marker and begin.
	Begun bool
	// Left means that QEMU has the marker of an irrevocable post-copy, set before Released is sent: the guest never
	// resumes here.
	Left        bool
	Streams     bool   // this virt-handler began the migration and forwards its stream
	Cause       string // the reason of this virt-handler's Cancel
	Settled     bool   // no hotplug is under way
	Mirrors     Mirrors
	Convergence Convergence
	// This virt-handler has observed these times. Stopped is that of a guest stopped for its switchover (pre-switchover,
	// device, and post-copy until it is Left), Canceling that of a migration that QEMU cancels, Switching that of a guest
	// stopped while its memory is copied, since QEMU was told to switch to post-copy.
	Stopped, Canceling, Switching time.Duration
	// Downtime is the limit of the guest's downtime. QEMU gets handoverPatience more.
	Downtime time.Duration
	// Continued means that this virt-handler has told QEMU to hand the guest over. Status may be older: QEMU does not
	// answer while the target does not read.
	Continued bool
	// StreamLost means that QEMU's stream no longer reaches the target, and that this virt-handler hides it from QEMU.
	StreamLost bool

	Connected bool // to the target's virt-handler
	// The facts came over any connection. Loaded is also true if the target's virt-handler never sends it.
	Ready, Loaded, Ran, Never bool
}

// SourceAction is an action at the source.
type SourceAction string

// The actions at the source.
const (
	SourceWait  SourceAction = "wait"             // until a fact changes
	RecordStart SourceAction = "record the start" // writes startTimestamp and the mode PreCopy
	MirrorDisks SourceAction = "mirror the disks" // that move with the guest
	// FinishMirrors ends the copies with all of the guest's writes. The source's disks stay for a guest that resumes.
	FinishMirrors SourceAction = "finish the mirrors"
	EndMirrors    SourceAction = "end the mirrors" // which are not needed any more
	// Begin sets the begun marker, then capabilities and parameters, and starts the migration.
	Begin              SourceAction = "begin"
	RecordPostCopy     SourceAction = "record the mode PostCopy"
	SwitchToPostCopy   SourceAction = "switch to post-copy" // migrate-start-postcopy
	MarkLeft           SourceAction = "mark the guest as left"
	PauseGuest         SourceAction = "pause the guest until it has moved"
	ContinueSwitchover SourceAction = "continue the switchover" // migrate-continue
	// Cancel cancels the migration (migrate_cancel). QEMU decides whether it comes in time.
	Cancel SourceAction = "cancel"
	// Withdraw ends a post-copy's stream to the target, reads its rest, and answers QEMU that it could not be loaded: the
	// migration fails.
	Withdraw SourceAction = "withdraw the guest"
	// RecordFailed writes failed, the reason, endTimestamp, and an abort's success.
	RecordFailed      SourceAction = "record the failure"
	RecordAbortFailed SourceAction = "record that the abort failed" // it came too late (abortStatus Failed)
	// Resume runs a sent guest here again (cont). failed is recorded first.
	Resume    SourceAction = "resume"
	Quit      SourceAction = "quit"                   // the guest runs at the target
	Recover   SourceAction = "recover the post-copy"  // opens a new stream
	EndLost   SourceAction = "end the lost guest"     // and set the VMI to Failed with the reason
	ReportEnd SourceAction = "report the guest's end" // as of any other guest
)

// SourceStep is the next step at the source.
type SourceStep struct {
	Action SourceAction
	Tell   Fact // to the target, besides the action
	// Reason is a sentence for the VM's owner, for Cancel, RecordFailed and EndLost.
	Reason string
}

// switchoverPatience bounds the guest's stop before its switchover, as virt-launcher does without a virt-handler.
const switchoverPatience = migrationstatus.Unattended

// DecideSource returns the next step at the source.
func DecideSource(f SourceFacts) SourceStep {
	step := f.decide()
	if step == (SourceStep{Action: SourceWait}) && f.Process == ProcessRuns && f.here() && f.Record.Failed && f.Mirrors.Left {
		// The record comes first, so that no migration begins with remains at the target.
		return SourceStep{Action: EndMirrors}
	}
	return step
}

func (f *SourceFacts) decide() SourceStep {
	switch {
	case f.Process == ProcessEnded:
		return f.ended()
	case f.Process != ProcessRuns:
		return SourceStep{Action: SourceWait}
	case !f.Begun:
		return f.beforeBegin()
	case f.canceledTooLate():
		return SourceStep{Action: EndLost, Reason: "the stream of the post-copy broke while it was canceled, and QEMU does not give the guest back"}
	}
	switch f.stage() {
	case copies:
		return f.whileCopying()
	case preSwitchover:
		return f.beforeSwitchover()
	case device:
		return f.handingOver()
	case postCopy:
		return f.inPostCopy()
	case sent:
		return f.afterSent()
	case back:
		if !f.Record.Failed && !f.Record.Final {
			return SourceStep{Action: RecordFailed, Reason: f.failure()}
		}
	}
	return SourceStep{Action: SourceWait}
}

// canceledTooLate reports whether an older virt-handler has canceled a post-copy whose stream broke: QEMU 7.2 stays in
// that state. Nothing was released, so the target has not run the guest.
func (f *SourceFacts) canceledTooLate() bool {
	return f.Status == migrationstatus.Canceling && f.Record.PostCopy && !f.Record.Final && !f.Left && !f.here() &&
		f.Canceling >= handoverPatience
}

// stage is the state of QEMU in a migration that has begun.
type stage uint8

const (
	// passes means that QEMU leaves the state by itself, or that it is unknown.
	passes stage = iota
	copies
	preSwitchover
	device
	postCopy
	sent
	// back means that the migration has ended and the guest is here.
	back
)

func (f *SourceFacts) stage() stage {
	switch {
	case f.Status.PostCopy(), f.Left && f.Status != migrationstatus.Completed && !f.here():
		return postCopy
	case f.Status == migrationstatus.PreSwitchover:
		return preSwitchover
	case f.Status == migrationstatus.Device:
		return device
	}
	switch f.Status {
	case migrationstatus.Setup, migrationstatus.WaitUnplug, migrationstatus.Active:
		return copies
	case "", migrationstatus.None, migrationstatus.Failed, migrationstatus.Canceled:
		if f.here() {
			return back
		}
	case migrationstatus.Completed:
		switch {
		case f.RunState == runstate.PostMigrate:
			return sent
		case f.here():
			// It was sent and has been resumed since.
			return back
		}
	}
	return passes
}

// here reports whether QEMU has the guest, running or not.
func (f *SourceFacts) here() bool {
	switch runstate.Of(f.RunState).Outlook {
	case runstate.Runs, runstate.Waits, runstate.Over:
		return true
	}
	return false
}

// never reports whether the target's QEMU has ended without having run.
func (f *SourceFacts) never() bool { return f.Never || f.Record.Current && !f.Record.TargetNamed }

const (
	aborted     = "the migration was aborted"
	targetEnded = "the target's QEMU has ended"
	streamEnded = "the connection to the target has ended"
)

func (f *SourceFacts) unwanted() string {
	switch {
	case f.Record.AbortRequested:
		return aborted
	case f.never():
		return targetEnded
	case f.Record.Deleting, f.Record.Final:
		return "the VMI is ending"
	case f.Record.Failed:
		return "the migration has failed"
	}
	return ""
}

func (f *SourceFacts) beforeBegin() SourceStep {
	wait := SourceStep{Action: SourceWait}
	if !f.Record.Current || f.Record.Failed || f.Record.Completed || f.Record.Final {
		return wait
	}
	if reason := f.unwanted(); reason != "" {
		if f.Record.Started {
			return SourceStep{Action: RecordFailed, Reason: reason}
		}
		// Before the start, virt-controller records the failure.
		return wait
	}
	if reason := f.copiesBroken(); reason != "" {
		return SourceStep{Action: RecordFailed, Reason: reason}
	}
	switch state := runstate.Of(f.RunState); {
	case !f.Record.Addressed, state.Outlook == runstate.Passes, !f.Settled:
		return wait
	case state.Outlook != runstate.Runs:
		return SourceStep{Action: RecordFailed, Reason: fmt.Sprintf("the guest does not run (QEMU's run state is %s), so it cannot be migrated", bounded(f.RunState))}
	case !f.Connected, !f.Ready:
		return wait
	case !f.Record.Started:
		return SourceStep{Action: RecordStart}
	case f.Mirrors.State == MirrorsMissing:
		return SourceStep{Action: MirrorDisks}
	case f.Mirrors.State == MirrorsCopy:
		return wait
	}
	return SourceStep{Action: Begin}
}

func (f *SourceFacts) whileCopying() SourceStep {
	if reason := cmp.Or(f.broken(), f.Mirrors.broken()); reason != "" {
		return SourceStep{Action: Cancel, Reason: reason}
	}
	if f.Switching >= handoverPatience {
		return SourceStep{Action: Cancel, Reason: fmt.Sprintf("the guest stood still for %s, and QEMU at the target did not read its memory", f.Switching.Round(time.Second))}
	}
	switch f.Convergence.Action {
	case ConvergeByPostCopy:
		if !f.Record.PostCopy {
			return SourceStep{Action: RecordPostCopy}
		}
		return SourceStep{Action: SwitchToPostCopy}
	case ConvergeByPause:
		if runstate.Of(f.RunState).Outlook == runstate.Runs {
			return SourceStep{Action: PauseGuest}
		}
	}
	return SourceStep{Action: SourceWait}
}

func (f *SourceFacts) broken() string {
	if reason := f.unwanted(); reason != "" {
		return reason
	}
	switch {
	case !f.Streams:
		return "virt-handler at the source was restarted"
	case f.Convergence.Action == GiveUp:
		return f.Convergence.Reason
	}
	return ""
}

func (f *SourceFacts) beforeSwitchover() SourceStep {
	reason := f.broken()
	if state := f.Mirrors.State; state == MirrorsFailed || state == MirrorsMissing {
		reason = cmp.Or(reason, f.Mirrors.broken())
	}
	complete := f.Settled && f.Connected && f.Ready
	switch {
	case f.Continued:
		return f.handingOver()
	case reason != "":
		return SourceStep{Action: Cancel, Reason: reason}
	case complete && (f.Mirrors.State == MirrorsUnneeded || f.Mirrors.State == MirrorsFinished):
		return SourceStep{Action: ContinueSwitchover}
	case f.Stopped >= switchoverPatience:
		return SourceStep{Action: Cancel, Reason: f.lacking()}
	case complete && f.Mirrors.State == MirrorsReady:
		return SourceStep{Action: FinishMirrors}
	}
	return SourceStep{Action: SourceWait}
}

// handoverPatience is how much longer than its downtime a guest may be stopped in the handover. A silent connection breaks
// earlier, but one to a QEMU that does not read stays.
const handoverPatience = time.Minute

// handingOver handles a guest that QEMU hands over. Nothing was released, so the target can't run it yet.
func (f *SourceFacts) handingOver() SourceStep {
	if reason := cmp.Or(f.unwanted(), f.lost(), f.standsTooLong("the last of its memory had not been sent")); reason != "" {
		return SourceStep{Action: Cancel, Reason: reason}
	}
	return SourceStep{Action: SourceWait}
}

func (f *SourceFacts) lost() string {
	if f.StreamLost {
		return streamEnded
	}
	return ""
}

func (f *SourceFacts) standsTooLong(lacks string) string {
	if f.Stopped < f.Downtime+handoverPatience {
		return ""
	}
	return fmt.Sprintf("the guest stood still for %s, and %s", f.Stopped.Round(time.Second), lacks)
}

func (f *SourceFacts) lacking() string {
	switch {
	case !f.Settled:
		return "a disk of the guest was being plugged or unplugged"
	case !f.Connected, !f.Ready:
		return "virt-handler at the target could not be reached"
	}
	return "the last of what the guest has written could not be copied to the target in time"
}

func (f *SourceFacts) inPostCopy() SourceStep {
	if !f.Left {
		return f.beforeLeft()
	}
	step := SourceStep{Action: SourceWait, Tell: Released}
	switch {
	case f.Record.Completed:
		step.Action = Quit
	case f.never():
		step.Action, step.Reason = EndLost, "the target ended during the post-copy, from which the guest cannot go back"
	case f.lateAbort():
		step.Action = RecordAbortFailed
	case f.Status == migrationstatus.PostCopyPaused:
		step.Action = Recover
	}
	return step
}

// beforeLeft handles a post-copy before the marker Left is set: nothing was released, so the guest has not run at the
// target. It comes back while this virt-handler has the stream, and if the stream breaks before the first page, which fails
// the migration. If it breaks later, there is no way back. An error at the very end also fails the migration, when the
// target may run the guest: Left distinguishes the two.
func (f *SourceFacts) beforeLeft() SourceStep {
	if !f.Status.Revocable() {
		return SourceStep{Action: MarkLeft}
	}
	reason := cmp.Or(f.unwanted(), f.lost(), f.standsTooLong("QEMU at the target had not loaded it"))
	switch {
	case reason != "" && f.Streams:
		return SourceStep{Action: Withdraw, Reason: reason}
	case f.Status == migrationstatus.PostCopyDevice, f.PostCopyBytes == 0, !f.Loaded:
		return SourceStep{Action: SourceWait}
	}
	return SourceStep{Action: MarkLeft}
}

func (f *SourceFacts) afterSent() SourceStep {
	switch {
	case f.Ran, f.Record.Completed:
		return SourceStep{Action: Quit, Tell: Released}
	case f.Record.Final:
		// A lost guest stays lost, although the VMI's end fails the migration, too.
		return SourceStep{Action: SourceWait}
	case f.Record.Failed:
		return SourceStep{Action: Resume}
	case f.never():
		// The record comes first, so that virt-controller does not conclude that the guest is lost.
		return SourceStep{Action: RecordFailed, Reason: f.failure()}
	case f.lateAbort():
		return SourceStep{Action: RecordAbortFailed, Tell: Released}
	}
	return SourceStep{Action: SourceWait, Tell: Released}
}

// lateAbort reports whether an abort is not answered yet.
func (f *SourceFacts) lateAbort() bool {
	return f.Record.AbortRequested && !f.Record.AbortFailed && !f.Record.Final
}

func (f *SourceFacts) ended() SourceStep {
	r := f.Record
	switch {
	case f.Exit.sent():
		return SourceStep{Action: SourceWait, Tell: Released}
	case r.Completed, r.Final:
		return SourceStep{Action: SourceWait}
	case !f.Exit.Known && r.Current && r.Started && !r.Failed:
		// It may have sent the guest: virt-controller decides, which sees both ends.
		return SourceStep{Action: SourceWait}
	}
	return SourceStep{Action: ReportEnd}
}

func (f *SourceFacts) failure() string {
	switch {
	case f.Record.AbortRequested && f.Cause == targetEnded:
		// An abort also ends the target, which may be observed first.
		return aborted
	case f.Cause != "":
		return f.Cause
	case f.Record.AbortRequested:
		return aborted
	case f.never():
		return targetEnded
	case f.Error != "":
		return "QEMU reports: " + bounded(f.Error)
	case !f.Streams:
		return "virt-handler at the source was restarted"
	}
	return streamEnded
}

// mostOfError bounds QEMU's error: a guest that controls QEMU may choose it.
const mostOfError = 512

func bounded(text string) string {
	return strconv.QuoteToASCII(text[:min(len(text), mostOfError)])
}

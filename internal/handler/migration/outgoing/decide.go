package outgoing

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Decision is the decision of one round. The zero value is that of a VMI that does not migrate away.
type Decision struct {
	// Report is the source's part of the status, nil without news.
	Report *vmistatus.SourceMigration
	// ActionDue means that Act has something to do.
	ActionDue bool
	// HandsOver means that the guest is being sent, or was.
	HandsOver bool
	// HidesEnd means that QEMU's end here is not the guest's end.
	HidesEnd bool

	step     switchover.SourceStep
	progress vmistatus.Progress
	facts    *Facts
}

// Decide decides on the facts of a round, and tells the target.
func (m *Migration) Decide(in Facts) Decision {
	f := m.observe(&in)
	source := m.source
	out := Decision{step: switchover.DecideSource(f), facts: &in}
	if source != nil && source.Refused() != "" && !f.Begun && f.Record.Current && !f.Record.Failed && !f.Record.Completed {
		out.step = switchover.SourceStep{Action: switchover.RecordFailed, Reason: source.Refused()}
	}
	if source != nil {
		source.Tell(out.step.Tell)
	}
	out.ActionDue = m.actionDue(out.step.Action, in.Ending)
	out.HandsOver = f.Begun && !f.Record.Failed
	out.HidesEnd = f.Process == switchover.ProcessEnded && out.step.Action != switchover.ReportEnd
	out.progress = progressOf(&f, &in.Guest.Migration)
	out.progress.Stopped = in.Guest.Stopped
	if said := sourceMigrationOf(out.step, in.state().MigrationUID, f.Record.AbortRequested); said != nil && in.Home {
		out.Report = said
	}
	return out
}

func sourceMigrationOf(step switchover.SourceStep, of types.UID, abortRequested bool) *vmistatus.SourceMigration {
	said := vmistatus.SourceMigration{UID: of}
	switch step.Action {
	case switchover.RecordStart:
		said.Begins = true
	case switchover.RecordPostCopy:
		said.Mode = v1.MigrationPostCopy
	case switchover.RecordFailed:
		said.Failure = step.Reason
		if abortRequested {
			said.Abort = v1.MigrationAbortSucceeded
		}
	case switchover.RecordAbortFailed:
		said.Abort = v1.MigrationAbortFailed
	default:
		return nil
	}
	return &said
}

// actionDue reports whether the action still has to be taken. An accepted request is not repeated.
func (m *Migration) actionDue(action switchover.SourceAction, ending bool) bool {
	switch action {
	case switchover.SwitchToPostCopy:
		return m.source != nil && !m.source.Switched()
	case switchover.Recover:
		return m.source != nil && m.source.Connected() && m.recovery.Due(migrationstatus.PostCopyPaused, m.env.Now())
	case switchover.FinishMirrors:
		return m.source != nil && !m.source.Finished()
	case switchover.ContinueSwitchover:
		return m.source != nil && !m.source.Continued()
	case switchover.Quit, switchover.EndLost:
		return !ending
	case switchover.MirrorDisks, switchover.EndMirrors, switchover.Begin, switchover.PauseGuest, switchover.MarkLeft,
		switchover.Cancel, switchover.Withdraw, switchover.Resume:
		return true
	}
	return false
}

package outgoing

import (
	"context"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func progressOf(f *switchover.SourceFacts, known *guest.Migration) vmistatus.Progress {
	p := &known.Progress
	switch {
	case !f.Record.Current || !f.Record.Started || f.Record.Failed || f.Record.Completed || f.Process != switchover.ProcessRuns:
	case !f.Begun && f.Mirrors.Begun:
		return vmistatus.Progress{
			Stage: vmistatus.CopyingDisks, Total: f.Mirrors.Total, Remaining: f.Mirrors.Total - f.Mirrors.Done, Sent: f.Mirrors.Done,
		}
	case !f.Begun:
	case f.Status == migrationstatus.Active:
		return vmistatus.Progress{
			Stage: vmistatus.SendingMemory, Total: int64(p.Total), Remaining: int64(p.Remaining), Sent: int64(p.Transferred),
			Rate: int64(p.Rate), DirtyRate: int64(p.DirtyRate), Downtime: p.Expected,
		}
	case handsOver(f.Status) && !f.Ran:
		return vmistatus.Progress{Stage: vmistatus.HandingOver}
	case f.Status == migrationstatus.Completed && f.RunState == runstate.PostMigrate:
		return vmistatus.Progress{Stage: vmistatus.GuestSent}
	}
	return vmistatus.Progress{}
}

// handsOver reports whether the guest is stopped, or at the target before its memory.
func handsOver(s migrationstatus.Status) bool {
	return s == migrationstatus.PreSwitchover || s == migrationstatus.Device || s.PostCopy()
}

// SetDowntimeLimit sets the downtime that QEMU may take in this round through the guest's memory: a goal, since the
// guest is stopped for longer if the network becomes slower. A failed call is repeated with the next sample. q is nil if
// there is no QEMU.
func (m *Migration) SetDowntimeLimit(ctx context.Context, d *Decision, q *QEMU) {
	source := m.source
	if source == nil || q == nil || d.facts == nil {
		return
	}
	known := &d.facts.Guest.Migration
	if known.Begun != m.of || known.Status != migrationstatus.Active {
		return
	}
	limits := d.facts.limits()
	limit := limits.AllowedDowntime(int64(known.Progress.Rounds))
	if source.Allowed() == limit {
		return
	}
	if err := q.Source.SetDowntime(ctx, limit); err != nil {
		m.env.Log.V(1).Info("QEMU was not told how long its guest may stand still", "reason", err.Error())
		return
	}
	source.Allows(limit)
}

// Progress returns the progress that should be written now, nil if it is not due or another change comes first. One
// clock reading decides whether it is due and dates it.
func (m *Migration) Progress(d *Decision, otherChange bool) *vmistatus.SourceMigration {
	source, of := m.source, d.progress
	if source != nil && (of.Stage == vmistatus.HandingOver || of.Stage == vmistatus.GuestSent) {
		source.HandsOver()
	}
	if source == nil || otherChange || of.Stage == "" || !d.facts.Home || !source.ProgressDue(d.facts.Observed.Now) {
		return nil
	}
	if of.Stage == vmistatus.CopyingDisks {
		of.Rate = source.CopyRate()
	}
	return &vmistatus.SourceMigration{UID: m.of, Progress: of}
}

// WritesProgress records that progress is being written.
func (m *Migration) WritesProgress(now time.Time) { m.source.ToldProgress(now) }

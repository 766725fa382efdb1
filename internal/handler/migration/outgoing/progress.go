package outgoing

import (
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/migration"
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

// handsOver reports whether the guest is stopped, or has moved before its memory.
func handsOver(s migrationstatus.Status) bool {
	return s == migrationstatus.PreSwitchover || s == migrationstatus.Device || s.PostCopy()
}

// observeProgress returns the progress, and whether it is due by the clock reading that dates it.
func observeProgress(source *migration.Source, f *switchover.SourceFacts, in *Facts) (of vmistatus.Progress, due bool) {
	of = progressOf(f, &in.Guest.Migration)
	of.Stopped = in.Guest.Stopped
	switch of.Stage {
	case vmistatus.HandingOver, vmistatus.GuestSent:
		source.RecordHandover()
	case vmistatus.CopyingDisks:
		of.Rate = source.CopyRate()
	}
	return of, of.Stage != "" && in.Home && source.ProgressDue(in.Observed.Now)
}

// Progress returns the progress to write, nil if it is not due or another change is written.
func (d *Decision) Progress(otherChange bool) *vmistatus.SourceMigration {
	if d.seen == nil || otherChange || !d.seen.progressDue {
		return nil
	}
	return &vmistatus.SourceMigration{UID: d.seen.state().MigrationUID, Progress: d.seen.progress}
}

// RecordProgressWrite records that progress is being written.
func (m *Migration) RecordProgressWrite(now time.Time) { m.source.RecordProgressWrite(now) }

package driver

import (
	"context"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// progressPatience bounds the write of a migration's progress. It is shorter than the interval, so that only one is in
// flight.
const progressPatience = 4 * time.Second

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

// setDowntimeLimit sets the downtime that QEMU may take in this round through the guest's memory: a goal, since the
// guest is stopped for longer if the network becomes slower. A failed call is repeated with the next sample.
func (d *Driver) setDowntimeLimit(ctx context.Context, s *snapshot, vmi *v1.VirtualMachineInstance) {
	source, known := d.moving.source, &s.guest.Migration
	if source == nil || s.attached == nil || known.Begun != d.moving.of || known.Status != migrationstatus.Active ||
		vmi == nil || vmi.Status.MigrationState == nil {
		return
	}
	limits := s.limitsOf(vmi, vmi.Status.MigrationState)
	limit := limits.AllowedDowntime(int64(known.Progress.Rounds))
	if source.Allowed() == limit {
		return
	}
	if err := s.attached.guest.SetDowntime(ctx, limit); err != nil {
		d.log.V(1).Info("QEMU was not told how long its guest may stand still", "reason", err.Error())
		return
	}
	source.Allows(limit)
}

// progress returns nil if progress is not due or another change comes first. One clock reading decides whether it is
// due and dates it.
func (d *Driver) progress(s *snapshot, o vmihandler.Observed, facts vmihandler.Facts) *changes {
	source, of := d.moving.source, s.migration.progress
	if source != nil && (of.Stage == vmistatus.HandingOver || of.Stage == vmistatus.GuestSent) {
		source.HandsOver()
	}
	if source == nil || o.Changed || s.role != vmihandler.Home || of.Stage == "" || !source.ProgressDue(s.now) {
		return nil
	}
	if of.Stage == vmistatus.CopyingDisks {
		of.Rate = source.CopyRate()
	}
	facts.Source = &vmistatus.SourceMigration{UID: d.moving.of, Progress: of}
	c := newChanges(o.VMI, facts)
	if c.err != nil || c.patch == nil {
		return nil
	}
	return c
}

// writeProgress writes in the background: QEMU may be about to wait for this driver, and the guest with it (decision
// 321). New figures soon replace a failed write.
func (d *Driver) writeProgress(ctx context.Context, s *snapshot) {
	c := s.progress
	if c == nil {
		return
	}
	d.moving.source.ToldProgress(s.now)
	d.startHelper(func() {
		ctx, cancel := context.WithTimeout(ctx, progressPatience)
		defer cancel()
		now, err := d.env.Cluster.PatchVMI(ctx, c.from, c.patch)
		if err != nil {
			d.log.V(1).Info("the progress of the migration was not written", "reason", err.Error())
			return
		}
		d.presence.SetStored(now)
	})
}

package outgoing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Decision is the decision of one round. The zero value is that of a VMI that does not migrate away.
type Decision struct {
	// Report is the source's part of the status; nil if nothing is new.
	Report *vmistatus.SourceMigration
	// ActionDue means that Act has something to do.
	ActionDue bool
	// HandsOver means that the guest is being sent or was sent.
	HandsOver bool
	// HidesEnd means that QEMU's end here is not the guest's end.
	HidesEnd bool

	seen *Seen
	step switchover.SourceStep
	// refusal is a new reason why the guest can't be sent.
	refusal string
	// sendsDisks sends the target the list of plugged disks.
	disks      []migrationwire.Disk
	sendsDisks bool
	endsDisks  bool // ends the disk connections
	// setsDowntime sets QEMU's limit to downtime.
	setsDowntime bool
	downtime     time.Duration
}

// Decide returns the decision on the facts of a round.
func (*Migration) Decide(seen Seen) Decision {
	f, out := seen.source, Decision{seen: &seen}
	if seen.connection != nil {
		out.decideDisks(&f)
		out.decideDowntime(&f)
	}
	out.step = switchover.DecideSource(f)
	// A QEMU that has ended or does not answer may have sent the guest.
	waits := f.Process == switchover.ProcessRuns && !f.Begun
	if refused := out.refused(); refused != "" && waits && f.Record.Current && !f.Record.Failed && !f.Record.Completed {
		out.step = switchover.SourceStep{Action: switchover.RecordFailed, Reason: refused}
	}
	out.ActionDue = seen.actionDue(out.step.Action)
	out.HandsOver = f.Begun && !f.Record.Failed
	out.HidesEnd = f.Process == switchover.ProcessEnded && out.step.Action != switchover.ReportEnd
	if said := sourceMigrationOf(out.step, seen.state().MigrationUID, f.Record.AbortRequested); said != nil && seen.Home {
		out.Report = said
	}
	return out
}

// refused returns the reason why the guest can't be sent; empty if none is known.
func (d *Decision) refused() string {
	if d.seen.connection == nil {
		return ""
	}
	return cmp.Or(d.refusal, d.seen.connection.told.Refused)
}

// decideDisks decides on the disks, which the target needs before any memory.
func (d *Decision) decideDisks(f *switchover.SourceFacts) {
	seen, told := d.seen, &d.seen.connection.told
	if !f.Begun {
		f.Settled = f.Settled && !seen.Concerns.Unsettled
		d.refusal = seen.Concerns.Refusal
	}
	there := told.Disks
	if f.Settled && !f.Begun {
		switch disks := pluggedDisks(&seen.Plugs); {
		case len(seen.Plugs.Detached) > 0:
			d.refusal = fmt.Sprintf("the guest still has the disks of volumes that were taken from it by force (%s): "+
				"it can be migrated when it has released them or was restarted", strings.Join(seen.Plugs.Detached, ", "))
		case !told.DisksSent:
			d.sendsDisks, d.disks, there = true, disks, disks
		case !slices.Equal(told.Disks, disks):
			d.refusal = "the guest has released a disk while its migration was prepared"
		}
	}
	f.Ready = f.Ready && (len(there) == 0 || seen.connection.plugged)
	// QEMU may be waiting for the target to write to a disk, and does nothing else.
	d.endsDisks = seen.Guest.Silent
}

func pluggedDisks(plugs *nodehotplug.Plugs) []migrationwire.Disk {
	disks := make([]migrationwire.Disk, 0, len(plugs.Disks))
	for _, d := range plugs.Disks {
		disks = append(disks, migrationwire.Disk{Volume: d.Volume, Bus: string(d.Place.Bus), Number: d.Place.Number})
	}
	return disks
}

// decideDowntime decides on QEMU's downtime limit in this pass through the memory. It is a goal: the guest is stopped for
// longer if the network becomes slower.
func (d *Decision) decideDowntime(f *switchover.SourceFacts) {
	if !f.Begun || f.Status != migrationstatus.Active {
		return
	}
	limits := d.seen.limits()
	d.downtime = limits.AllowedDowntime(int64(d.seen.Guest.Migration.Progress.Rounds))
	d.setsDowntime = d.downtime != d.seen.connection.told.Downtime
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

// actionDue reports whether Act must take the action. It does not repeat an accepted request.
func (s *Seen) actionDue(action switchover.SourceAction) bool {
	switch action {
	case switchover.SwitchToPostCopy, switchover.Recover, switchover.FinishMirrors, switchover.ContinueSwitchover, switchover.Withdraw:
		return s.connection != nil && s.requestDue(action, &s.connection.told)
	case switchover.Quit, switchover.EndLost:
		return !s.Ending
	case switchover.MirrorDisks, switchover.EndMirrors, switchover.Begin, switchover.PauseGuest, switchover.MarkLeft,
		switchover.Cancel, switchover.Resume:
		return true
	}
	return false
}

// withdrawPause is the interval of withdrawals. QEMU may take minutes for the rest of the memory.
const withdrawPause = 200 * time.Millisecond

func (s *Seen) requestDue(action switchover.SourceAction, told *migration.Told) bool {
	switch action {
	case switchover.SwitchToPostCopy:
		return !told.Switched
	case switchover.FinishMirrors:
		return !told.Finished
	case switchover.ContinueSwitchover:
		return !told.Continued
	case switchover.Withdraw:
		return s.Observed.Now.Sub(told.Withdrawn) >= withdrawPause
	}
	return s.source.Connected && s.recovery.Due(s.Observed.Now)
}

package outgoing

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Tell sends the target its part of the decision, each fact once. Call it before the other effects of a round.
func (m *Migration) Tell(d *Decision) {
	source := m.source
	if source == nil || d.seen == nil {
		return
	}
	if d.refusal != "" {
		source.RecordRefusal(d.refusal)
	}
	if d.sendsDisks {
		source.TellDisks(d.disks)
	}
	if d.endsDisks {
		source.EndDisks()
	}
	if d.seen.source.Left {
		source.RecordLeft()
	}
	source.Tell(d.step.Tell)
}

// SetDowntimeLimit sets the decided limit. The next sample repeats a failed call. q is nil if there is no QEMU.
func (m *Migration) SetDowntimeLimit(ctx context.Context, d *Decision, q *QEMU) {
	source := m.source
	if source == nil || q == nil || !d.setsDowntime {
		return
	}
	if err := q.Source.SetDowntime(ctx, d.downtime); err != nil {
		m.env.Log.V(1).Info("QEMU was not told how long its guest may stand still", "reason", err.Error())
		return
	}
	source.RecordDowntimeLimit(d.downtime)
}

var errNoWay = errors.New("the way to the migration's target has ended")

// Act takes the decided step.
func (m *Migration) Act(ctx context.Context, d *Decision, q *QEMU) error {
	step, facts := d.step, &d.seen.Facts
	vmi, of := facts.Observed.VMI, facts.state().MigrationUID
	m.env.Log.Info("migrating the guest", "migration", of, "step", step.Action, "reason", step.Reason)
	switch step.Action {
	case switchover.MirrorDisks:
		return m.mirrorDisks(ctx, facts, q)
	case switchover.FinishMirrors:
		err := q.Copies.FinishMirrors(ctx, of)
		if err == nil && m.source != nil {
			m.source.RecordFinishMirrors()
		}
		return err
	case switchover.EndMirrors:
		return q.Copies.EndMirrors(ctx)
	case switchover.Begin:
		return m.begin(ctx, facts, q)
	case switchover.PauseGuest:
		m.announceStop(vmi, m.notConvergingMessage(vmi))
		return q.Source.StopToConverge(ctx, of)
	case switchover.SwitchToPostCopy, switchover.MarkLeft, switchover.Recover:
		return m.postCopy(ctx, d, q)
	case switchover.ContinueSwitchover:
		return m.continueSwitchover(ctx, d.seen.source.Record.PostCopy, q)
	case switchover.Cancel:
		return m.cancel(ctx, step.Reason, q)
	case switchover.Withdraw:
		return m.withdraw(ctx, step.Reason, of, q)
	case switchover.Resume:
		return q.Source.Reclaim(ctx, of)
	case switchover.Quit, switchover.EndLost:
		if step.Action == switchover.Quit {
			m.announceMigrated(&facts.Guest, vmi)
		}
		q.Link.Stop(ctx, launch.Stop{}, func(err error) {
			m.env.Log.Info("virt-launcher was asked to end the QEMU that the guest has left", "reason", err.Error())
		})
	}
	return nil
}

// A failure ends the migration, unless QEMU has handed the guest over nevertheless.
func (m *Migration) continueSwitchover(ctx context.Context, postCopy bool, q *QEMU) error {
	source := m.source
	if source != nil && postCopy {
		source.Shield()
	}
	err := q.Source.Continue(ctx)
	switch {
	case source == nil:
	case err == nil:
		source.RecordContinue()
	default:
		source.RecordRefusal("virt-handler at the source could not have QEMU hand the guest over")
	}
	return err
}

func (m *Migration) cancel(ctx context.Context, reason string, q *QEMU) error {
	if m.source != nil {
		m.source.RecordCancelReason(reason)
		m.source.Discard()
	}
	return q.Source.Cancel(ctx)
}

// withdraw is called until QEMU reports that the migration has failed.
func (m *Migration) withdraw(ctx context.Context, reason string, of types.UID, q *QEMU) error {
	source := m.source
	if source == nil {
		return errNoWay
	}
	source.RecordCancelReason(reason)
	source.RecordWithdrawal()
	source.Discard()
	sent, err := q.Source.SendRest(ctx, of)
	if err != nil || !sent {
		return err
	}
	return source.Reject()
}

// begin forwards the socket to the target first: QEMU connects only once.
func (m *Migration) begin(ctx context.Context, f *Facts, q *QEMU) error {
	source, vmi := m.source, f.Observed.VMI
	if source == nil {
		return errNoWay
	}
	if err := forward(ctx, q.Link, source, migrationwire.Stream, layout.MigrationSocket); err != nil {
		return err
	}
	limits := f.limits()
	downtime := limits.AllowedDowntime(1)
	source.RecordBegin()
	source.RecordDowntimeLimit(downtime)
	if vmihandler.LosesWrites(f.Guest.KVM, q.Memory()) {
		m.announceStop(vmi, losesWritesMessage(vmi))
	}
	err := q.Source.Begin(ctx, handover.Begin{
		Migration: f.state().MigrationUID, Socket: layout.Socket(layout.MigrationSocket),
		Bandwidth: limits.Bandwidth, AutoConverge: limits.AutoConverge, Downtime: downtime,
		Transport: source.Transport(),
	})
	var refusal *power.Refusal
	if errors.As(err, &refusal) {
		source.RecordRefusal(refusal.Message)
	}
	return err
}

func forward(ctx context.Context, link *connection.Link, source *migration.Source, channel migrationwire.Channel, socket string) error {
	if source.Forwards(channel) {
		return nil
	}
	listener, err := link.Listen(ctx, socket, layout.QEMUUser)
	if err == nil {
		source.Forward(channel, listener, link.Admit)
	}
	return err
}

// mirrorTimeout bounds how long QEMU opens the disks at the target; it does nothing else meanwhile.
const mirrorTimeout = 10 * time.Second

// A failure ends the migration, and the streams, for which QEMU would wait.
func (m *Migration) mirrorDisks(ctx context.Context, f *Facts, q *QEMU) error {
	source := m.source
	if source == nil {
		return errNoWay
	}
	if err := forward(ctx, q.Link, source, migrationwire.Disks, layout.DisksSocket); err != nil {
		return err
	}
	opened := source.OpenDisks(mirrorTimeout)
	defer opened()
	err := q.Copies.Mirror(ctx, diskcopy.Mirroring{
		Migration: f.state().MigrationUID, Socket: layout.Socket(layout.DisksSocket), Disks: machine.Mirrors(f.Observed.VMI),
		Bandwidth: f.limits().Bandwidth,
	})
	var refusal *power.Refusal
	switch {
	case err == nil, errors.Is(err, diskcopy.ErrEnding):
		return err
	case errors.As(err, &refusal):
		source.RecordRefusal(refusal.Message)
	default:
		source.RecordRefusal("the guest's disks cannot be copied to the target: virt-handler could not have QEMU begin")
	}
	source.EndDisks()
	return err
}

func (m *Migration) postCopy(ctx context.Context, d *Decision, q *QEMU) error {
	source, action, of := m.source, d.step.Action, d.seen.state().MigrationUID
	switch {
	case action == switchover.MarkLeft:
		if source != nil && d.seen.source.Status.Revocable() && source.Lost() {
			return nil // and is withdrawn in the next round
		}
		err := q.Source.MarkLeft(ctx, of)
		if err == nil && source != nil {
			source.RecordLeft()
		}
		return err
	case source == nil:
		return errNoWay
	case action == switchover.SwitchToPostCopy:
		told, err := q.Source.SwitchToPostCopy(ctx, of)
		if told {
			source.RecordPostCopySwitch()
		}
		return err
	}
	if err := forward(ctx, q.Link, source, migrationwire.Stream, layout.MigrationSocket); err != nil {
		return err
	}
	m.recovery.RecordAttempt(m.env.Now())
	return q.Source.Recover(ctx, of, layout.Socket(layout.MigrationSocket))
}

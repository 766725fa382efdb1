package driver

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// maxDisk bounds a disk's size, in bytes, in a migration's time limits.
const maxDisk = 1 << 50

// At most one of source and target is set.
type moving struct {
	of      types.UID
	address string
	source  *migration.Source
	target  *migration.Target
	// recovered is when QEMU was last told to resume a broken post-copy; zero once it has resumed.
	recovered time.Time
	// exportFailure is about the content of plugged disks.
	listenFailure, exportFailure failure
	plugged                      bool
	stopped                      bool
	announced                    bool
}

func (m *moving) close() {
	if m.source != nil {
		m.source.Close()
	}
	if m.target != nil {
		m.target.Close()
	}
}

type decision struct {
	source      switchover.SourceStep
	target      switchover.TargetStep
	arrived     switchover.TargetFacts
	sourceFacts *vmistatus.SourceMigration
	targetFacts *vmistatus.TargetMigration
	// actionDue means that there is an action beside the status; at the target it concerns post-copy.
	actionDue bool
	handsOver bool
	// hidesEnd means that QEMU's end here is not the guest's end.
	hidesEnd bool
	progress vmistatus.Progress
}

// syncMigrationConnections opens the connections of the VMI's migration and closes those of any other.
func (d *Driver) syncMigrationConnections(ctx context.Context, s *snapshot) {
	m := d.wantedMigration(s)
	if m == nil || d.moving.of != m.MigrationUID || d.moving.target != nil && s.role != vmihandler.Destination {
		d.moving.close()
		d.moving = moving{}
	}
	if m == nil {
		return
	}
	d.moving.of = m.MigrationUID
	switch {
	case s.role == vmihandler.Destination:
		if s.attached != nil && d.moving.target == nil {
			d.moving.target = d.expectSource(s.presence.VMI, m)
		}
	case m.SourceNode == d.env.Node:
		d.connectToTarget(ctx, s, m)
	}
}

func (d *Driver) wantedMigration(s *snapshot) *v1.VirtualMachineInstanceMigrationState {
	if s.presence.VMI == nil || s.presence.Deserted || d.env.Migration == nil {
		return nil
	}
	if m := s.presence.VMI.Status.MigrationState; m != nil && !m.Failed {
		return m
	}
	return nil
}

func (d *Driver) connectToTarget(ctx context.Context, s *snapshot, m *v1.VirtualMachineInstanceMigrationState) {
	if d.moving.source != nil && d.moving.address != m.TargetNodeAddress {
		// The target's virt-handler has restarted at another address, and its streams have ended.
		d.moving.source.Close()
		d.moving.source = nil
	}
	if d.moving.source != nil || m.TargetNodeAddress == "" || s.attached == nil {
		return
	}
	source, err := migration.NewSource(ctx, d.migrationEnv(), idOf(s.presence.VMI, m), m.TargetNode, m.TargetNodeAddress)
	if err != nil {
		d.log.Info("the migration has no way to its target", "migration", m.MigrationUID, "reason", err.Error())
		return
	}
	source.Offer(switchover.OfferOf(s.limitsOf(s.presence.VMI, m), machine.GuestMemory(&s.presence.VMI.Spec), d.env.Migration.CPUs))
	d.moving.source, d.moving.address = source, m.TargetNodeAddress
}

func idOf(vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigrationState) migration.ID {
	return migration.ID{Migration: m.MigrationUID, VMI: vmi.UID, Namespace: vmi.Namespace, Name: vmi.Name}
}

func (d *Driver) migrationEnv() migration.Env {
	return migration.Env{Node: d.env.Migration, Go: d.startHelper, Wake: d.wake, Now: d.env.Now, Log: d.log}
}

func (d *Driver) expectSource(vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigrationState) *migration.Target {
	dial := func(socket string) func(context.Context) (*net.UnixConn, error) {
		return func(ctx context.Context) (*net.UnixConn, error) {
			a := d.attached.Load()
			if a == nil {
				return nil, errors.New("the QEMU that is to take the guest has ended")
			}
			return a.link.Dial(ctx, socket)
		}
	}
	target := migrationproxy.Target{Dial: dial(layout.MigrationSocket), Claims: len(vmi.Status.MigratedVolumes) > 0, Plugged: len(mirrorsBy(vmi, true)) > 0}
	if len(machine.Mirrors(vmi)) > 0 {
		target.DialDisks = dial(layout.DisksSocket)
	}
	return migration.NewTarget(d.migrationEnv(), idOf(vmi, m), m.SourceNode, target)
}

func (d *Driver) targetDecision(s *snapshot, o vmihandler.Observed, m *v1.VirtualMachineInstanceMigrationState) decision {
	known := &s.guest.Migration
	f := switchover.TargetFacts{
		Record: switchover.RecordOf(o.VMI, m.MigrationUID), Process: vmihandler.ProcessOf(o),
		Exit:     switchover.ExitOf(s.connection.Exit, true),
		RunState: known.RunState, Status: known.Status,
		Marked: known.Incoming == m.MigrationUID && known.Ran,
		Doomed: known.Incoming == m.MigrationUID && known.Doomed,
	}
	if o.Pod != nil {
		_, f.Named = o.VMI.Status.ActivePods[o.Pod.UID]
		f.Terminating = o.Pod.Terminating || o.Pod.Gone
	}
	target := d.moving.target
	if target != nil {
		if f.Process == switchover.ProcessRuns && known.Arriving() {
			target.Unrun(true)
		}
		target.Fill(&f)
	}
	out := decision{target: switchover.DecideTarget(f), arrived: f}
	out.actionDue = out.target.Action == switchover.RecoverIncoming && d.recoveryDue(f.Status)
	if target != nil {
		target.Tell(out.target.Tell)
	}
	said := vmistatus.TargetMigration{UID: m.MigrationUID, Runs: out.target.Action == switchover.ReportCompleted}
	if f.Process == switchover.ProcessRuns && target != nil && out.target.Action != switchover.Kill {
		// An earlier virt-handler may have reported another address.
		said.Address = d.env.Migration.Address()
	}
	out.targetFacts = &said
	return out
}

func (d *Driver) sourceDecision(s *snapshot, o vmihandler.Observed, m *v1.VirtualMachineInstanceMigrationState) decision {
	f := d.sourceFacts(s, o, m)
	source := d.moving.source
	out := decision{source: switchover.DecideSource(f)}
	if source != nil && source.Refused() != "" && !f.Begun && f.Record.Current && !f.Record.Failed && !f.Record.Completed {
		out.source = switchover.SourceStep{Action: switchover.RecordFailed, Reason: source.Refused()}
	}
	if source != nil {
		source.Tell(out.source.Tell)
	}
	out.actionDue = d.actionDue(out.source.Action)
	out.handsOver = f.Begun && !f.Record.Failed
	out.hidesEnd = f.Process == switchover.ProcessEnded && out.source.Action != switchover.ReportEnd
	out.progress = progressOf(&f, &s.guest.Migration)
	out.progress.Stopped = s.guest.Stopped
	if said := sourceMigrationOf(out.source, m.MigrationUID, f.Record.AbortRequested); said != nil && s.role == vmihandler.Home {
		out.sourceFacts = said
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

func recordStage(source *migration.Source, f *switchover.SourceFacts, known *guest.Migration) {
	switch {
	case f.Begun:
		source.Stands(f.Status == migrationstatus.PreSwitchover || f.Status == migrationstatus.Device ||
			(f.Status.PostCopy() || f.Status == migrationstatus.Canceling) && !f.Left)
		source.Pauses(f.Status == migrationstatus.Active && f.RunState == runstate.PausedToMigrate)
		if f.Status == migrationstatus.Active {
			p := &known.Progress
			source.Copied(switchover.Sample{
				Elapsed: p.Elapsed, Transferred: int64(p.Transferred), Remaining: int64(p.Remaining),
				DirtyRate: int64(p.DirtyRate), Throughput: int64(p.Rate),
			})
		}
	case f.Mirrors.Begun:
		source.CopiedDisks(&f.Mirrors)
	}
}

func (d *Driver) sourceFacts(s *snapshot, o vmihandler.Observed, m *v1.VirtualMachineInstanceMigrationState) switchover.SourceFacts {
	known := &s.guest.Migration
	f := switchover.SourceFacts{
		Record: switchover.RecordOf(o.VMI, m.MigrationUID), Process: vmihandler.ProcessOf(o),
		Exit:     switchover.ExitOf(s.connection.Exit, false),
		RunState: o.RunState, Settled: s.disks.Fixed,
		Mirrors: mirrorsOf(machine.Mirrors(o.VMI), s.guest.Jobs, m.MigrationUID),
	}
	if known.Begun == m.MigrationUID {
		f.Begun, f.Status, f.Error = true, known.Status, known.Failure
		f.Left, f.PostCopyBytes = known.Left, int64(known.PostCopyBytes)
	}
	source := d.moving.source
	if source == nil {
		return f
	}
	recordStage(source, &f, known)
	if !f.Begun {
		f.Settled = f.Settled && !s.concerns.Unsettled
		if s.concerns.Refusal != "" {
			source.Refuse(s.concerns.Refusal)
		}
	}
	if f.Settled && !f.Begun {
		sendPluggedDisks(source, &s.disks.Plugs)
	}
	if s.guest.Silent {
		// QEMU may be waiting for the target to write to a disk, and does nothing else.
		source.EndDisks()
	}
	limits := s.limitsOf(o.VMI, m)
	limits.PostCopy = limits.PostCopy && source.Transport().PostCopy
	source.Fill(&f, limits)
	return f
}

func mirrorsOf(disks []machine.Mirror, jobs []guest.Job, of types.UID) switchover.Mirrors {
	list := make([]switchover.Mirror, 0, len(disks))
	for i := range disks {
		mirror := switchover.Mirror{Volume: disks[i].Volume}
		for _, j := range jobs {
			if j.ID == disks[i].Job(of) {
				mirror.Status, mirror.Error, mirror.Done, mirror.Total = j.Status, j.Error, j.Done, j.Total
			}
		}
		list = append(list, mirror)
	}
	mirrors := switchover.MirrorsOf(list)
	mirrors.Left = len(jobs) > 0
	return mirrors
}

// actionDue reports whether the action still has to be taken. An accepted request is not repeated.
func (d *Driver) actionDue(action switchover.SourceAction) bool {
	switch action {
	case switchover.SwitchToPostCopy:
		return d.moving.source != nil && !d.moving.source.Switched()
	case switchover.Recover:
		return d.moving.source != nil && d.moving.source.Connected() && d.recoveryDue(migrationstatus.PostCopyPaused)
	case switchover.FinishMirrors:
		return d.moving.source != nil && !d.moving.source.Finished()
	case switchover.ContinueSwitchover:
		return d.moving.source != nil && !d.moving.source.Continued()
	case switchover.Quit, switchover.EndLost:
		return d.link != nil && !d.link.Told()
	case switchover.MirrorDisks, switchover.EndMirrors, switchover.Begin, switchover.PauseGuest, switchover.MarkLeft, switchover.Cancel, switchover.Resume:
		return true
	}
	return false
}

func (d *Driver) migrate(ctx context.Context, s snapshot, o vmihandler.Observed) error {
	step, of, g := s.migration.source, o.VMI.Status.MigrationState.MigrationUID, s.attached.guest
	d.log.Info("migrating the guest", "migration", of, "step", step.Action, "reason", step.Reason)
	switch step.Action {
	case switchover.MirrorDisks:
		return d.mirrorDisks(ctx, s, o)
	case switchover.FinishMirrors:
		err := g.FinishMirrors(ctx, of)
		if err == nil && d.moving.source != nil {
			d.moving.source.Finishes()
		}
		return err
	case switchover.EndMirrors:
		return g.EndMirrors(ctx)
	case switchover.Begin:
		return d.beginMigration(ctx, s, o)
	case switchover.PauseGuest:
		d.announceStop(o.VMI, d.notConvergingMessage(o.VMI))
		return g.Converge(ctx, of)
	case switchover.SwitchToPostCopy, switchover.MarkLeft, switchover.Recover:
		return d.postCopy(ctx, step.Action, of, g)
	case switchover.ContinueSwitchover:
		return d.continueSwitchover(ctx, g)
	case switchover.Cancel:
		if d.moving.source != nil {
			d.moving.source.Canceled(step.Reason)
			d.moving.source.Discard()
		}
		return g.Cancel(ctx)
	case switchover.Resume:
		return g.Reclaim(ctx, of)
	case switchover.Quit, switchover.EndLost:
		if step.Action == switchover.Quit {
			d.announceMigrated(&s, o.VMI)
		}
		d.link.Stop(ctx, launch.Stop{}, func(err error) {
			d.log.Info("virt-launcher was asked to end the QEMU that the guest has left", "reason", err.Error())
		})
	}
	return nil
}

// On failure the migration is given up, unless QEMU has handed the guest over nevertheless.
func (d *Driver) continueSwitchover(ctx context.Context, g *guest.Guest) error {
	err := g.Continue(ctx)
	source := d.moving.source
	switch {
	case source == nil:
	case err == nil:
		source.Continues()
	default:
		source.Refuse("virt-handler at the source could not have QEMU hand the guest over")
	}
	return err
}

// beginMigration has the socket forwarded to the target first: QEMU connects only once.
func (d *Driver) beginMigration(ctx context.Context, s snapshot, o vmihandler.Observed) error {
	source, m := d.moving.source, o.VMI.Status.MigrationState
	if source == nil {
		return errors.New("the way to the migration's target has ended")
	}
	g := s.attached.guest
	if err := d.forward(ctx, source, migrationwire.Stream, layout.MigrationSocket); err != nil {
		return err
	}
	limits := s.limitsOf(o.VMI, m)
	downtime := limits.AllowedDowntime(1)
	source.Begins()
	source.Allows(downtime)
	if vmihandler.LosesWrites(s.guest.KVM, s.attached.memory.LastKnown()) {
		d.announceStop(o.VMI, losesWritesMessage(o.VMI))
	}
	err := g.Begin(ctx, guest.Begin{
		Migration: m.MigrationUID, Socket: layout.Socket(layout.MigrationSocket),
		Bandwidth: limits.Bandwidth, AutoConverge: limits.AutoConverge, Downtime: downtime,
		Transport: source.Transport(),
	})
	var refusal *power.Refusal
	if errors.As(err, &refusal) {
		source.Refuse(refusal.Message)
	}
	return err
}

func (d *Driver) forward(ctx context.Context, source *migration.Source, channel migrationwire.Channel, socket string) error {
	if source.Forwards(channel) {
		return nil
	}
	listener, err := d.link.Listen(ctx, socket, layout.QEMUUser)
	if err == nil {
		source.Forward(channel, listener, d.link.Admit)
	}
	return err
}

// mirrorTimeout bounds how long QEMU waits for the target when it opens the disks there: it does nothing else
// meanwhile.
const mirrorTimeout = 10 * time.Second

// If the copy can't begin, the migration fails, and the streams are closed so that QEMU waits for nothing.
func (d *Driver) mirrorDisks(ctx context.Context, s snapshot, o vmihandler.Observed) error {
	source := d.moving.source
	if source == nil {
		return errors.New("the way to the migration's target has ended")
	}
	if err := d.forward(ctx, source, migrationwire.Disks, layout.DisksSocket); err != nil {
		return err
	}
	opened := source.OpenDisks(mirrorTimeout)
	defer opened()
	err := s.attached.guest.Mirror(ctx, guest.Mirroring{
		Migration: o.VMI.Status.MigrationState.MigrationUID, Socket: layout.Socket(layout.DisksSocket), Disks: machine.Mirrors(o.VMI),
		Bandwidth: s.limitsOf(o.VMI, o.VMI.Status.MigrationState).Bandwidth,
	})
	var refusal *power.Refusal
	switch {
	case err == nil, errors.Is(err, guest.ErrEnding):
		return err
	case errors.As(err, &refusal):
		source.Refuse(refusal.Message)
	default:
		source.Refuse("the guest's disks cannot be copied to the target: virt-handler could not have QEMU begin")
	}
	source.EndDisks()
	return err
}

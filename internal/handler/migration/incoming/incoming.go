// Package incoming is the target's side of a migration, from a QEMU that waits for its guest until that guest runs.
//
//	Listen, ExportPlugged  prepare QEMU for its guest, and tell the source
//	Sync                   admits or forgets the source
//	Observe                collects the facts                   -> seen
//	Decide                 is pure: it calls package switchover -> decision
//	Tell                   sends the source its part of the decision
//	Take, Recover          take the decided step, if it is its turn
//
// The driver calls them in this order in each round. Observe and Decide have no effect; Observe records whether QEMU had
// no marker, because that is unknown after QEMU's end.
//
// It owns the state of one migration of one VMI. It must not write a status, start or stop QEMU, or decide when a step
// is taken: the driver does. It stores nothing for the next virt-handler, which finds QEMU's markers.
package incoming

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/retry"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Network connects guests that have arrived.
type Network interface {
	Connect(pod network.Pod, vmi *v1.VirtualMachineInstance) error
}

// Env has a Migration's dependencies.
type Env struct {
	migration.Env
	Network  Network
	Settings func() clusterconfig.Settings
	// Dial connects to a socket of the waiting QEMU. It is safe for concurrent use.
	Dial func(ctx context.Context, socket string) (*net.UnixConn, error)
}

// Migration is the migration of a VMI to the node, if there is one. Only one goroutine calls its methods.
type Migration struct {
	env Env // goroutines of the source's connections read it, too
	current
}

// current is the state of one migration.
type current struct {
	of types.UID
	// target is nil until the source is admitted.
	target   *migration.Target
	recovery migration.Recovery
	// They are about the content of plugged disks, which QEMU accepts once it is exported.
	exportFailure retry.Failure
	exported      bool
	listenFailure retry.Failure
}

// New returns a Migration that has not begun.
func New(env Env) *Migration { return &Migration{env: env} }

// Close ends the source's connections.
func (m *Migration) Close() {
	if m.target != nil {
		m.target.Close()
	}
}

// Sync admits the source of the VMI's migration, and forgets any other. state is nil if there is no migration; here means
// that this node is its target, waits that there is a QEMU for the guest.
func (m *Migration) Sync(vmi *v1.VirtualMachineInstance, state *v1.VirtualMachineInstanceMigrationState, here, waits bool) {
	if state == nil || m.of != state.MigrationUID || m.target != nil && !here {
		m.Close()
		m.current = current{}
	}
	if state == nil {
		return
	}
	m.of = state.MigrationUID
	if here && waits && m.target == nil {
		m.target = m.expectSource(vmi, state)
	}
}

func (m *Migration) expectSource(vmi *v1.VirtualMachineInstance, state *v1.VirtualMachineInstanceMigrationState) *migration.Target {
	dial := func(socket string) func(context.Context) (*net.UnixConn, error) {
		return func(ctx context.Context) (*net.UnixConn, error) { return m.env.Dial(ctx, socket) }
	}
	target := migrationproxy.Target{Dial: dial(layout.MigrationSocket), Claims: len(vmi.Status.MigratedVolumes) > 0, Plugged: len(mirrorsBy(vmi, true)) > 0, Log: m.env.Log}
	if len(machine.Mirrors(vmi)) > 0 {
		target.DialDisks = dial(layout.DisksSocket)
	}
	return migration.NewTarget(m.env.Env, migration.IDOf(vmi, state), state.SourceNode, target)
}

// Arrival returns the arriving guest, nil until the source is admitted.
func (m *Migration) Arrival(vmi *v1.VirtualMachineInstance) *concern.Arrival {
	if m.target == nil {
		return nil
	}
	a := &concern.Arrival{VMI: volumemigration.Target(vmi), Places: map[string]machine.Slot{}, Copied: map[string]int64{}}
	for _, moved := range volumemigration.Of(vmi) {
		a.Copied[moved.Volume] = volumemigration.SizeOf(vmi, moved.Volume)
	}
	for _, disk := range m.target.Disks() {
		a.Places[disk.Volume] = machine.Slot{Bus: v1.DiskBus(disk.Bus), Number: disk.Number}
	}
	return a
}

// Facts are the driver's facts of one round. The VMI has a migration.
type Facts struct {
	Observed vmihandler.Observed
	Exit     *launch.Exit
	Guest    guest.Migration
	// Silent means that QEMU did not answer the last query.
	Silent bool
	// Address is this node's address for migrations, empty if it has none.
	Address string
}

// Seen is the result of one Observe.
type Seen struct {
	facts    switchover.TargetFacts
	of       types.UID
	admits   bool // the source
	address  string
	recovery migration.Recovery
	now      time.Time
}

// Decision is the decision of one round. The zero value is that of a VMI that does not migrate to this node.
type Decision struct {
	Action switchover.TargetAction
	// Report is the target's part of the status.
	Report *vmistatus.TargetMigration
	// ActionDue means that Recover has something to do. After is the delay until it may have, 0 if it waits for nothing.
	ActionDue bool
	After     time.Duration

	facts switchover.TargetFacts
	step  switchover.TargetStep
}

// Observe returns the facts for Decide. It records whether QEMU has no ran marker.
func (m *Migration) Observe(in Facts) Seen {
	known, o := &in.Guest, in.Observed
	of := o.VMI.Status.MigrationState.MigrationUID
	f := switchover.TargetFacts{
		Record: switchover.RecordOf(o.VMI, of), Process: vmihandler.ProcessOf(o),
		Exit:     switchover.ExitOf(in.Exit, true),
		RunState: known.RunState, Status: known.Status,
		Marked: known.Incoming == of && known.Ran,
		Doomed: known.Incoming == of && known.Doomed,
	}
	if o.Pod != nil {
		_, f.Named = o.VMI.Status.ActivePods[o.Pod.UID]
		f.Terminating = o.Pod.Terminating || o.Pod.Gone
	}
	if arrival := o.Launcher.Arrival; o.Link == vmihandler.LinkUp && arrival.Broken && (!o.Attached || in.Silent) {
		f.Stuck, f.HasRun = true, arrival.Ran
	}
	target := m.target
	if target != nil {
		if f.Process == switchover.ProcessRuns && known.Arriving() && !f.Stuck {
			target.RecordUnmarked(true)
		}
		target.AddFacts(&f)
	}
	return Seen{facts: f, of: of, admits: target != nil, address: in.Address, recovery: m.recovery, now: o.Now}
}

// Decide returns the decision on the facts of a round.
func (*Migration) Decide(seen Seen) Decision {
	f := seen.facts
	step := switchover.DecideTarget(f)
	said := vmistatus.TargetMigration{UID: seen.of, Runs: step.Action == switchover.ReportCompleted}
	if (f.Process == switchover.ProcessRuns || f.Stuck) && seen.admits && step.Action != switchover.Kill {
		// An earlier virt-handler may have reported another address.
		said.Address = seen.address
	}
	d := Decision{Action: step.Action, Report: &said, facts: f, step: step}
	if step.Action == switchover.RecoverIncoming {
		d.ActionDue, d.After = seen.recovery.Due(seen.now), migration.RecoverAgain
	}
	return d
}

// Tell sends the source its part of the decision, each fact once. Call it before the other effects of a round.
func (m *Migration) Tell(d *Decision) {
	if m.target != nil {
		m.target.Tell(d.step.Tell)
	}
}

// QEMU is the QEMU that the guest has come to.
type QEMU struct {
	Target handover.Target
	NetNS  *os.File        // of the pod
	NICs   map[string]bool // QEMU's interfaces
	// UseTPM makes the next start use the TPM state that came with the guest.
	UseTPM func(of types.UID) error
}

// Take runs the guest that has arrived. Right before it resumes, Take forgets that QEMU had no ran marker: nobody may
// report from then on that the guest never ran here. Take tells the source as soon as QEMU reports the start, since the
// busy guest delays QEMU's next answers.
func (m *Migration) Take(ctx context.Context, vmi *v1.VirtualMachineInstance, d *Decision, q *QEMU) error {
	of := vmi.Status.MigrationState.MigrationUID
	m.env.Log.Info("running the guest that has arrived", "migration", of)
	arrived := nichotplug.WithNICs(vmi, func(name string) bool { return q.NICs[name] })
	if err := m.env.Network.Connect(network.Pod{NetNS: q.NetNS, Bindings: m.env.Settings().NetworkBindings}, arrived); err != nil {
		return fmt.Errorf("connecting the guest that has arrived to its networks: %w", err)
	}
	target := m.target
	if target != nil {
		target.RecordUnmarked(false)
	}
	err := q.Target.Take(ctx, of, func() error { return q.UseTPM(of) }, func() {
		if target != nil {
			target.Tell(switchover.Taken(d.facts).Tell)
		}
	})
	if err != nil {
		return err
	}
	q.Target.Announce(ctx)
	return nil
}

// Launcher is the virt-launcher of the QEMU that the guest has come to.
type Launcher interface {
	Recovers() bool
	Recover(ctx context.Context) (listens bool, err error)
}

var errOldLauncher = errors.New("QEMU does not answer, and its virt-launcher is from a version that can't help it")

// Recover makes QEMU wait for the rest of the guest's memory after the connection to the source has broken. virt-launcher
// can tell it so even if QEMU answers nothing; g, which may be nil, is used if virt-launcher is an older one.
func (m *Migration) Recover(ctx context.Context, vmi *v1.VirtualMachineInstance, launcher Launcher, g *guest.Guest) error {
	m.recovery.RecordAttempt(m.env.Now())
	of := vmi.Status.MigrationState.MigrationUID
	m.env.Log.Info("waiting for the rest of the guest's memory", "migration", of)
	switch {
	case launcher.Recovers():
		ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
		defer cancel()
		listens, err := launcher.Recover(ctx)
		if err == nil && !listens {
			m.env.Log.Info("the connection of the post-copy is not broken any more", "migration", of)
		}
		return err
	case g == nil:
		return errOldLauncher
	}
	return handover.TargetOf(g).RecoverIncoming(ctx, of, layout.Socket(layout.MigrationSocket))
}

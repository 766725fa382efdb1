// Package driver runs the VMIs of a node. Each VMI has one driver, whose goroutine observes, asks package vmihandler for
// the next step, and acts.
//
// A Driver owns its parts and the order of their actions: presence (VMI and pods), connection (to virt-launcher), and for
// each attached QEMU guest, guestagent, requests (of users) and the concerns (concerns.go). The parts report facts as
// values and wake the driver, which passes them to other parts and to its tasks: preparation, the migrations outgoing and
// incoming, vmireport, runningguest. The package must not decide about a VMI's needs, make disks or networks itself, or
// know how VMIs and pods are watched. It keeps no journal: a new driver finds a running guest by its sockets.
package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/guest/guestusage"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/guest/runcontrol"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/migration/incoming"
	"drydock.dev/drydock/internal/handler/migration/outgoing"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/retry"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/handler/vmireport"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Network serves the guests' networks.
type Network interface {
	preparation.Network
	runningguest.Network
	incoming.Network
	// Disconnected returns the named interfaces whose device in the pod is gone or was replaced.
	Disconnected(pod network.Pod, names []string) ([]string, error)
	// RemoveLeftovers removes the leftovers of interfaces on secondary networks, except those in keep.
	RemoveLeftovers(pod network.Pod, keep []string) error
	Teardown(vmi types.UID)
}

// Cluster is a driver's client of the API server (apiTimeout).
type Cluster interface {
	presence.Cluster
	volumes.Cluster
	vmireport.Cluster
}

// Env has the dependencies that all drivers of a node share.
type Env struct {
	Node string
	// Pods is the kubelet's pods directory.
	Pods    string
	Watcher *podpath.Watcher
	Network Network
	Cluster Cluster
	// Disks is preparation.MakeDisks outside of tests.
	Disks    func(ctx context.Context, pod disk.Pod, vmi *v1.VirtualMachineInstance) error
	Volumes  volumes.Opener
	Settings func() clusterconfig.Settings
	// The driver's goroutine calls Attached after it has started or taken over a guest; may be nil.
	Attached func(ctx context.Context, guest *runningguest.Guest)
	// Migration is nil if migration is off.
	Migration *migration.Node
	// The driver's goroutine calls Migrated after a migration away from the node; may be nil.
	Migrated func(metrics.Migrated)
	// Panicked is called after a panic of a guest's system. It must not block; may be nil.
	Panicked func(metrics.Panic)
	// Traced gets the trace of each start of a guest on the node. It must not block. FirstLine waits for the first line of
	// a guest's serial console; ok is false if there will be none. They are nil if nobody wants traces.
	Traced    func([]starttrace.Span)
	FirstLine func(ctx context.Context, guest *runningguest.Guest) (at time.Time, ok bool)
	// SELinux is nil on a node without SELinux.
	SELinux *nodeselinux.Node
	// KVM returns the result of the node's KVM probe, after which WakeAll wakes the drivers. If it is nil, guests have
	// no KVM.
	KVM     func() (usable, known bool)
	Belongs func(peer *podpath.Peer, pod types.UID) error
	Now     func() time.Time
	Log     logr.Logger

	// They bound the concurrent conversations with guest agents.
	agents, agentsForFigures guestagent.Places
	connections              *connection.Env
}

func (e *Env) kvm() (usable, known bool) {
	if e.KVM == nil {
		return false, true
	}
	return e.KVM()
}

// Driver manages one VMI. Only the goroutine of Run acts. Others hand observations to a part and wake it, or wait for the
// answer to a request.
type Driver struct {
	env       *Env
	uid       types.UID
	namespace string
	name      string
	log       logr.Logger
	woken     chan struct{}
	helpers   sync.WaitGroup

	presence   *presence.Presence
	connection *connection.Connection
	// attached is nil without a QEMU. Only Run stores it. Its value is never modified.
	attached atomic.Pointer[attached]
	// linked is link, for other goroutines.
	linked atomic.Pointer[connection.Link]
	rounds atomic.Uint64 // of Run
	// They are for metrics, and outlive attached: a guest that ends its monitor's connection must not get new bounds.
	meter  guestusage.Meter
	record guestagent.Record

	// The fields below belong to the goroutine of Run.
	preparation preparation.Env
	link        *connection.Link
	pod         *preparation.Pod      // of link
	prepared    *preparation.Prepared // set before the QEMU of link exists
	failures    retry.Failures
	outgoing    *outgoing.Migration
	incoming    *incoming.Migration
	reports     *vmireport.Reporter
	// notified was last passed to Env.Attached.
	notified *attached
	start    *start // nil if no trace of the guest's start is wanted, or it was sent
}

func newDriver(env *Env, first *v1.VirtualMachineInstance) *Driver {
	d := &Driver{
		env: env, uid: first.UID, namespace: first.Namespace, name: first.Name,
		log:   logs.VMI(env.Log, first),
		woken: make(chan struct{}, 1),
	}
	d.presence = presence.New(presence.Env{
		Node: env.Node, Pods: env.Pods, Cluster: env.Cluster, Wake: d.wake, Now: env.Now, Log: d.log,
	}, first)
	d.preparation = preparation.Env{
		Node: env.Node, Network: env.Network, Cluster: env.Cluster, Disks: env.Disks, Settings: env.Settings, KVM: env.kvm,
		Devices: d.presence.Devices, Now: env.Now, Log: d.log,
	}
	d.reports = vmireport.NewReporter(vmireport.Env{Cluster: env.Cluster, Stored: d.presence.SetStored, Go: d.helpers.Go, Log: d.log})
	moving := migration.Env{Node: env.Migration, Go: d.helpers.Go, Wake: d.wake, Now: env.Now, Log: d.log}
	d.outgoing = outgoing.New(outgoing.Env{Env: moving, Event: env.Cluster.Event, Migrated: env.Migrated})
	d.incoming = incoming.New(incoming.Env{Env: moving, Network: env.Network, Settings: env.Settings, Dial: dialLinked(&d.linked)})
	d.start = newStart(env, first)
	d.connection = connection.New(env.connections, connection.Owner{Go: d.helpers.Go, Wake: d.wake, Now: env.Now})
	return d
}

func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default: // Run will look anyway
	}
}

// Run manages the VMI until it is gone from this node or ctx ends. The guest continues; no goroutine or connection does.
func (d *Driver) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.closeAll()
	defer cancel()
	for ctx.Err() == nil {
		d.rounds.Add(1)
		linked := d.observeConnection()
		d.answerRequests(ctx)
		queryAgain, hold := d.presence.QueryMissing(ctx, presence.Launcher{Connected: linked.Link != nil, Exited: linked.Exit != nil})
		if hold {
			d.sleep(ctx, queryAgain, nil)
			continue
		}
		d.reports.AnnounceUnanswered(d.presence.VMI())
		s := d.observe(ctx, linked)
		d.syncMigrations(ctx, &s)
		o := d.observed(&s)
		d.decideMigrations(&s, o)
		d.tellMigrations(&s)
		changes := d.decideStatus(&s, &o)
		if s.progress != nil {
			d.outgoing.RecordProgressWrite(s.now)
			d.reports.WriteProgress(ctx, s.progress)
		}
		d.outgoing.SetDowntimeLimit(ctx, &s.outgoing, s.attached.sendingQEMU())
		step, after := next(o, &s)
		d.notifyAttached(ctx)
		after = backoff.Sooner(after, d.traceStart(ctx, &s))
		after = backoff.Sooner(after, backoff.Sooner(queryAgain, s.agentAfter))
		if step == vmihandler.Release {
			d.log.Info("released the VMI")
			return
		}
		step, after = d.failures.ApplyBackoff(step, after, o)
		after = backoff.Sooner(after, s.incoming.After)
		if step == vmihandler.Wait {
			d.sleep(ctx, after, linked.Link)
			continue
		}
		err := d.act(ctx, step, s, o, changes)
		if ctx.Err() != nil {
			return
		}
		if step != vmihandler.Connect { // its result is not known yet
			d.failures.Record(step, err, d.env.Now())
		}
		if err != nil {
			d.log.Info("a step failed", "step", step, "reason", err.Error())
			d.announceTarget(o, &s)
		}
	}
}

func next(o vmihandler.Observed, s *snapshot) (vmihandler.Step, time.Duration) {
	switch {
	case o.VMI != nil && s.role == vmihandler.Destination:
		return vmihandler.NextAtDestination(o, s.incoming.Action)
	case o.VMI != nil && s.role == vmihandler.Former:
		return vmihandler.NextAtFormer(o)
	}
	return vmihandler.Next(o)
}

// The driver may have attached before a migration brought the guest.
func (d *Driver) notifyAttached(ctx context.Context) {
	a := d.attached.Load()
	if a == nil || a == d.notified || d.env.Attached == nil {
		return
	}
	if m, err := d.runningGuest(); err == nil {
		d.notified = a
		d.env.Attached(ctx, m)
	}
}

// sleep waits until the driver is woken, the launcher says something, or the launcher or QEMU ends, for at most limit; 0
// means no limit. link is nil if there is none or its end is known.
func (d *Driver) sleep(ctx context.Context, limit time.Duration, link *connection.Link) {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var launcherGone, launcherSays, qemuGone <-chan struct{}
	if link != nil {
		launcherGone, launcherSays = link.Done(), link.Changed()
		if a := d.attached.Load(); a != nil {
			qemuGone = a.guest.Done()
		}
	}
	select {
	case <-ctx.Done():
	case <-d.woken:
	case <-timeout:
	case <-launcherGone:
	case <-launcherSays:
	case <-qemuGone:
	}
}

func (d *Driver) act(ctx context.Context, step vmihandler.Step, s snapshot, o vmihandler.Observed, changes *vmireport.Changes) error {
	switch step {
	case vmihandler.Connect:
		d.connection.Connect(ctx, o.Pod.UID)
		return nil
	case vmihandler.Start:
		return d.startGuest(ctx, o.VMI, s.role)
	case vmihandler.Attach:
		return d.attach(ctx, o.VMI)
	case vmihandler.Migrate:
		if s.role == vmihandler.Destination {
			return d.incoming.Recover(ctx, o.VMI, d.link, s.attached.qemu())
		}
		return d.outgoing.Act(ctx, &s.outgoing, s.attached.sendingQEMU())
	case vmihandler.Take:
		return d.incoming.Take(ctx, o.VMI, &s.incoming, s.attached.receivingQEMU(d.pod, o.VMI))
	case vmihandler.Stop:
		return d.stop(ctx, &s, o)
	case vmihandler.Kill:
		d.log.Info("ending the launcher by force: it has not stopped the guest within its grace period")
		return d.link.Kill()
	case vmihandler.Report:
		return d.reports.Write(ctx, changes)
	case vmihandler.Resume:
		return runcontrol.Of(s.attached.guest).Resume(ctx)
	case s.concerns.Step:
		return s.attached.concerns.Act(ctx, s.attached.guest.Monitor(), s.round, step)
	case vmihandler.Begin:
		return d.startCPUs(ctx, s)
	}
	return nil
}

func (d *Driver) startGuest(ctx context.Context, instance *v1.VirtualMachineInstance, at vmihandler.Role) error {
	p, err := d.pod.Start(ctx, instance, at)
	if err == nil {
		d.prepared = p
		d.start.prepared(p)
	}
	return err
}

const reasonLate = "StartedWithoutVolumes" // of an event

func (d *Driver) startCPUs(ctx context.Context, s snapshot) error {
	instance := s.presence.VMI
	started, err := runcontrol.Of(s.attached.guest).Start(ctx, machine.BootIndexes(&instance.Spec, s.disks.Plugged))
	if err != nil || !started {
		return err
	}
	late := vmihandler.DecideHalt(instance, s.disks.Plugged, d.env.Now()).LateMessage()
	if late != "" {
		d.env.Cluster.Event(instance, corev1.EventTypeWarning, reasonLate, late)
	}
	return nil
}

func (d *Driver) closeAll() {
	d.outgoing.Close()
	d.incoming.Close()
	d.helpers.Wait() // a connection attempt in progress has ended
	d.detach()
	d.connection.Close()
	d.helpers.Wait()
	d.env.Network.Teardown(d.uid)
}

// virt-launcher presses the power button and kills QEMU after the grace period. A target's QEMU, still without its
// guest, ends at once.
func (d *Driver) stop(ctx context.Context, s *snapshot, o vmihandler.Observed) error {
	grace := vmihandler.Grace(o)
	if s.role == vmihandler.Destination {
		if s.attached != nil && o.VMI.Status.MigrationState != nil {
			if err := handover.TargetOf(s.attached.guest).MarkDoomed(ctx, s.guest.Migration.Incoming); err != nil {
				return err
			}
		}
		grace = 0
	}
	_, failure := vmihandler.Broken(o)
	d.log.Info("stopping the guest", "gracePeriodSeconds", grace, "runState", o.RunState)
	d.link.Stop(ctx, launch.Stop{GracePeriodSeconds: grace, Failure: failure}, func(err error) {
		d.log.Info("virt-launcher was asked to stop the guest", "reason", err.Error())
	})
	return nil
}

// announceTarget sends an event about a target that can't be prepared: virt-handler writes no status for it, and
// virt-controller gives the migration up in time.
func (d *Driver) announceTarget(o vmihandler.Observed, s *snapshot) {
	if s.role == vmihandler.Destination && d.failures.BecameVisible() {
		d.env.Cluster.Event(o.VMI, corev1.EventTypeWarning, v1.SyncFailed.String(),
			fmt.Sprintf("The node %s can't take the guest yet: %v", d.env.Node, d.failures.Visible()))
	}
}

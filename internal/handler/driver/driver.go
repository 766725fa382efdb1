// Package driver runs the VMIs of a node: one driver for each VMI, each with one goroutine
// that observes, lets package guestlifecycle decide, and acts.
//
// A Driver owns the parts that look after one VMI on the node, and the order in which things
// are done: presence (VMI and pods), connection (to virt-launcher), and, for each QEMU
// that it is attached to, guest, guestagent and volumes. They report facts, as values, and
// wake the driver; it hands on what one part must know of another. It must not decide what a
// VMI needs (package guestlifecycle does), make disks or networks itself, or know how VMIs and pods are
// watched. It keeps no journal: a new driver finds a running guest by its sockets and
// continues.
package driver

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// Network makes and serves the guests' networks.
type Network interface {
	Setup(ctx context.Context, pod network.Pod, vmi *v1.VirtualMachineInstance) ([]network.Interface, error)
	// Connect connects a guest that has arrived.
	Connect(pod network.Pod, vmi *v1.VirtualMachineInstance) error
	// Loose are the interfaces, of those named, whose side in the pod is gone or another one.
	Loose(pod network.Pod, names []string) ([]string, error)
	// Tidy removes what was made for interfaces on other networks than the pods' that are not named.
	Tidy(pod network.Pod, keep []string) error
	Teardown(vmi types.UID)
	// Dial connects to a port of a guest by one of its interfaces; namespace is its pod's.
	Dial(ctx context.Context, namespace *os.File, to network.Interface, protocol string, port int) (net.Conn, error)
}

// Cluster is the API server as far as a driver needs it.
type Cluster interface {
	presence.Cluster
	volumes.Cluster
	// PatchVMI applies a JSON patch and returns the VMI as it is then.
	PatchVMI(ctx context.Context, vmi *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error)
}

// Env is what all drivers of a node share.
type Env struct {
	Node string
	// Pods is the kubelet's folder of pods.
	Pods    string
	Watcher *podpath.Watcher
	Network Network
	Cluster Cluster
	// Disks makes what QEMU opens in a pod (PrepareDisks).
	Disks func(ctx context.Context, pod disk.Pod, vmi *v1.VirtualMachineInstance) error
	// Volumes finds the persistent volumes of pods.
	Volumes volumes.Opener
	// Settings are the cluster's, newest first asked for.
	Settings func() clusterconfig.Settings
	// Attached is told, by the driver's own goroutine, of a guest that a driver
	// has just started or taken over; it may be nil.
	Attached func(ctx context.Context, guest *Machine)
	// Migration is how guests come to the node and leave it; nil where they don't.
	Migration *migration.Node
	// Migrated is told, by the driver's own goroutine, what the migration of a guest has cost that
	// has left the node; it may be nil.
	Migrated func(metrics.Migrated)
	// SELinux is the node's; nil without.
	SELinux *nodeselinux.Node
	// KVM says whether the node's probe found KVM usable, once that is known; WakeAll tells the drivers. It is nil
	// where guests have no KVM.
	KVM func() (usable, known bool)
	// Belongs checks that a process is one of a pod's.
	Belongs func(peer *podpath.Peer, pod types.UID) error
	Now     func() time.Time
	Log     logr.Logger

	// agents has a place for each conversation with a guest agent that may go on at
	// a time.
	agents guestagent.Places
	// connections is what all connections to launchers share.
	connections *connection.Env
}

// kvm reports whether guests of the node get KVM, if that is known yet.
func (e *Env) kvm() (usable, known bool) {
	if e.KVM == nil {
		return false, true
	}
	return e.KVM()
}

// Driver looks after one VMI. Its Run is the only goroutine that acts; others leave what
// they saw with a part and wake it.
type Driver struct {
	env *Env
	uid types.UID
	// namespace is the VMI's.
	namespace string
	log       logr.Logger
	woken     chan struct{}
	// helpers are the goroutines that the driver has started.
	helpers sync.WaitGroup

	presence   *presence.Presence
	connection *connection.Connection
	// attached is the QEMU that the driver is attached to; nil for none. Run sets it, and
	// never changes what it points to.
	attached atomic.Pointer[attached]

	// What follows is the Run goroutine's own. prepared is what was prepared for the QEMU of
	// link, before there is one.
	prepared *prepared
	link     *connection.Link
	failures failures
	moving   moving
	// introduced is the QEMU that Env.Attached was told of.
	introduced *attached
	// tidied is the guest in whose pod nothing is left of interfaces that were unplugged before.
	tidied *guest.Guest
	// looked is the version of the pod that its links were looked at with last.
	looked string
}

func newDriver(env *Env, first *v1.VirtualMachineInstance) *Driver {
	d := &Driver{
		env: env, uid: first.UID, namespace: first.Namespace,
		log:   env.Log.WithValues("vmi", first.Namespace+"/"+first.Name, "uid", first.UID),
		woken: make(chan struct{}, 1),
	}
	d.presence = presence.New(presence.Env{
		Node: env.Node, Pods: env.Pods, Cluster: env.Cluster, Wake: d.wake, Now: env.Now, Log: d.log,
	}, first)
	d.connection = connection.New(env.connections, connection.Owner{Go: d.start, Wake: d.wake, Now: env.Now})
	return d
}

// start runs a goroutine that ends before Run does.
func (d *Driver) start(f func()) { d.helpers.Go(f) }

// wake makes Run look again.
func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default: // it is going to anyway
	}
}

// Run looks after the VMI until it is gone from this node or ctx ends. When it
// returns, no goroutine and no connection is left; the guest is not touched.
func (d *Driver) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.release()
	defer cancel()
	for ctx.Err() == nil {
		linked := d.observeConnection()
		askAgain, hold := d.presence.Ask(ctx, presence.Launcher{Connected: linked.Link != nil, Exited: linked.Exit != nil})
		if hold {
			d.sleep(ctx, askAgain, nil)
			continue
		}
		s := d.observe(ctx, linked)
		d.tendMigration(ctx, &s)
		o, changes := d.decided(&s)
		d.tell(ctx, &s)
		d.allowDowntime(ctx, &s, o.VMI)
		step, after := next(o, &s)
		d.introduce(ctx)
		after = backoff.Sooner(after, backoff.Sooner(askAgain, s.agentAfter))
		if step == guestlifecycle.Release {
			d.log.Info("released the VMI")
			return
		}
		step, after = d.failures.hold(step, after, o)
		if step == guestlifecycle.Wait {
			d.sleep(ctx, after, linked.Link)
			continue
		}
		err := d.act(ctx, step, s, o, changes)
		if ctx.Err() != nil {
			return
		}
		if step != guestlifecycle.Connect { // how that ended is not known yet
			d.failures.note(step, err, d.env.Now())
		}
		if err != nil {
			d.log.Info("a step failed", "step", step, "reason", err.Error())
			d.announceTarget(o, &s)
		}
	}
}

// next chooses the step for the role that the node has.
func next(o guestlifecycle.Observed, s *snapshot) (guestlifecycle.Step, time.Duration) {
	switch {
	case o.VMI != nil && s.role == guestlifecycle.Destination:
		return guestlifecycle.NextAtDestination(o, s.migration.target.Action)
	case o.VMI != nil && s.role == guestlifecycle.Former:
		return guestlifecycle.NextAtFormer(o)
	}
	return guestlifecycle.Next(o)
}

// introduce tells of a guest that is this node's: it may have been attached to before it was.
func (d *Driver) introduce(ctx context.Context) {
	a := d.attached.Load()
	if a == nil || a == d.introduced || d.env.Attached == nil {
		return
	}
	if m, err := d.machine(); err == nil {
		d.introduced = a
		d.env.Attached(ctx, m)
	}
}

// sleep waits for news, for at most so long; 0 waits for news alone. That a launcher or
// a QEMU is gone is news, too; link is nil where it is known.
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

func (d *Driver) act(ctx context.Context, step guestlifecycle.Step, s snapshot, o guestlifecycle.Observed, changes *changes) error {
	switch step {
	case guestlifecycle.Connect:
		d.connection.Connect(ctx, o.Pod.UID)
		return nil
	case guestlifecycle.Start:
		return d.startGuest(ctx, o.VMI, s.role)
	case guestlifecycle.Attach:
		return d.attach(ctx, o.VMI)
	case guestlifecycle.Migrate:
		if s.role == guestlifecycle.Destination {
			return d.recoverIncoming(ctx, s, o)
		}
		return d.migrate(ctx, s, o)
	case guestlifecycle.Take:
		return d.take(ctx, s, o)
	case guestlifecycle.Stop:
		return d.stop(ctx, &s, o)
	case guestlifecycle.Kill:
		d.log.Info("ending the launcher by force: it has not stopped the guest within its grace period")
		return d.link.Kill()
	case guestlifecycle.Report:
		return d.report(ctx, changes)
	}
	return d.tend(ctx, step, s, o)
}

// tend does what is to be done about a guest that is there and stays.
func (d *Driver) tend(ctx context.Context, step guestlifecycle.Step, s snapshot, o guestlifecycle.Observed) error {
	switch step {
	case guestlifecycle.Resume:
		return s.attached.guest.Resume(ctx)
	case guestlifecycle.SwitchLinks:
		return s.attached.guest.SwitchLinks(ctx, s.inGuest(o.VMI))
	case guestlifecycle.PlugNICs:
		return d.plugNICs(ctx, &s, o.VMI)
	case guestlifecycle.ChangeCPUs:
		return d.changeCPUs(ctx, &s)
	case guestlifecycle.ChangeMemory:
		return s.attached.guest.GiveMemory(ctx, s.memory.To)
	case guestlifecycle.Begin:
		return d.begin(ctx, s)
	case guestlifecycle.Plug:
		// What fails is reported in the volumes' own status and is tried again by itself.
		s.attached.volumes.Act(ctx, s.attached.guest.Monitor(), d.input(o.VMI, s.attached.prepared))
	}
	return nil
}

// begin starts the CPUs of a guest that has waited for volumes.
func (d *Driver) begin(ctx context.Context, s snapshot) error {
	instance := s.presence.VMI
	started, err := s.attached.guest.Start(ctx, bootOrder(instance, s.volumes))
	if err != nil || !started {
		return err
	}
	late := guestlifecycle.DecideHalt(instance, s.volumes.Plugged, d.env.Now()).LateMessage()
	if late != "" {
		d.env.Cluster.Event(instance, corev1.EventTypeWarning, reasonLate, late)
	}
	return nil
}

// release ends everything that the driver owns.
func (d *Driver) release() {
	d.moving.close()
	d.helpers.Wait() // whoever was connecting has done so, or has given up
	d.detach()
	d.connection.Close()
	d.helpers.Wait()
	d.env.Network.Teardown(d.uid)
}

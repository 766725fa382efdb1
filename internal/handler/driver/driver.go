// Package driver runs the VMIs of a node: one driver for each VMI, each with one
// goroutine that observes, lets package vmi decide, and acts.
//
// It owns the connections to virt-launcher and QEMU and the order in which
// things are done. It must not decide what a VMI needs (package vmi does), make
// disks or networks itself, or know how VMIs and pods are watched. It keeps no
// journal: a new driver finds a running guest by its sockets and continues.
package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/launcherclient"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
)

// Network makes and serves the guests' networks.
type Network interface {
	Setup(ctx context.Context, pod network.Pod, vmi *v1.VirtualMachineInstance) ([]network.Interface, error)
	Teardown(vmi types.UID)
}

// Cluster is the API server as far as a driver needs it.
type Cluster interface {
	// PatchVMI applies a JSON patch and returns the VMI as it is then.
	PatchVMI(ctx context.Context, vmi *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error)
	// VMI reads the VMI as it is now, not from a cache.
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// PodExists asks for the very pod, not from a cache.
	PodExists(ctx context.Context, namespace, name string, uid types.UID) (bool, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// Event reports to the VM's owner what happened; it never fails or waits.
	Event(vmi *v1.VirtualMachineInstance, eventType, reason, message string)
}

// Env is what all drivers of a node share.
type Env struct {
	Node string
	// Pods is the kubelet's folder of pods.
	Pods    string
	Watcher *podpath.Watcher
	Network Network
	Cluster Cluster
	// Volumes finds the persistent volumes of pods.
	Volumes podpath.Volumes
	// Settings are the cluster's, newest first asked for.
	Settings func() clusterconfig.Settings
	// Attached is told, by the driver's own goroutine, of a guest that a driver
	// has just started or taken over; it may be nil.
	Attached func(ctx context.Context, guest *Machine)
	// SELinux is the node's; nil without.
	SELinux *nodeselinux.Node
	// KVM says that the node's probe found KVM usable.
	KVM bool
	// Belongs checks that a process is one of a pod's.
	Belongs func(peer *podpath.Peer, pod types.UID) error
	Now     func() time.Time
	Log     logr.Logger

	// agents has a place for each conversation with a guest agent that may go on at
	// a time.
	agents chan struct{}
}

// Driver looks after one VMI. Its Run is the only goroutine that acts; other
// goroutines leave what they saw under mu and wake it.
type Driver struct {
	env *Env
	uid types.UID
	// namespace is the VMI's.
	namespace string
	log       logr.Logger
	wake      chan struct{}
	// helpers are the goroutines that the driver has started.
	helpers sync.WaitGroup

	mu sync.Mutex
	// vmi is the newest that is known, nil when it is not this node's any more.
	vmi *v1.VirtualMachineInstance
	// absent is what the caches do not show.
	absent absent
	// pods are those in the VMI's namespace that say they are its launcher's.
	pods []*corev1.Pod
	// holders are the VMI's attachment pods on this node.
	holders []hotplug.Pod
	// link is the way to virt-launcher, linkFailure why there is none.
	link        *link
	linkFailure error
	linking     bool
	// exit is how QEMU ended; it outlives the connection that told it.
	exit *launch.Exit
	// guest is the QEMU that runs, nil while none is attached.
	guest *guest

	// prepared is set by the Run goroutine before there is a guest, and read by
	// others, under mu, only while there is one.
	prepared *prepared

	// What follows is the Run goroutine's own.
	stopping *stopping
	troubles troubles
}

// link is a connection to virt-launcher and what is reached through it.
type link struct {
	pod    types.UID
	client *launcherclient.Client
	peer   *podpath.Peer
	// selinux is what the launcher is known by.
	selinux nodeselinux.Launcher
	// private is the pod's folder of sockets.
	private *podpath.Dir
}

func (l *link) close() {
	l.client.Close()
	l.peer.Close()
	l.private.Close()
}

// stopping remembers that virt-launcher was told to stop.
type stopping struct {
	grace int64
	since time.Time
}

func newDriver(env *Env, first *v1.VirtualMachineInstance) *Driver {
	return &Driver{
		env: env, uid: first.UID, namespace: first.Namespace, vmi: first,
		log:  env.Log.WithValues("vmi", first.Namespace+"/"+first.Name, "uid", first.UID),
		wake: make(chan struct{}, 1),
	}
}

// poke makes Run look again.
func (d *Driver) poke() {
	select {
	case d.wake <- struct{}{}:
	default: // it is going to anyway
	}
}

// setVMI takes over what the cache shows of the VMI; nil when it is not shown any
// more. What is older than what the driver has itself written is passed over.
func (d *Driver) setVMI(seen *v1.VirtualMachineInstance) {
	d.mu.Lock()
	d.absent.vmi = seen == nil
	if seen != nil && (d.vmi == nil || !older(seen, d.vmi)) {
		d.vmi = seen
	}
	d.mu.Unlock()
	d.poke()
}

// setStored takes over the VMI as the API server has answered; nil when it has
// none. The answer may be older than what the cache has shown meanwhile, also that
// the VMI is gone.
func (d *Driver) setStored(stored *v1.VirtualMachineInstance) {
	d.mu.Lock()
	switch {
	case stored == nil:
		d.absent.vmi = true
	case d.vmi != nil && !older(stored, d.vmi):
		d.vmi = stored
	}
	d.mu.Unlock()
	d.poke()
}

func older(a, b *v1.VirtualMachineInstance) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// setPods takes over what was seen of the launcher pods.
func (d *Driver) setPods(seen []*corev1.Pod) {
	d.mu.Lock()
	d.pods = seen
	d.mu.Unlock()
	d.poke()
}

// launcherPod is the pod that virt-controller has chosen to run the guest; nil
// while the node has none. A label is anybody's to write, and a pod that only
// bears the VMI's must not come between virt-handler and the guest.
func launcherPod(instance *v1.VirtualMachineInstance, pods []*corev1.Pod) *corev1.Pod {
	if instance == nil {
		return nil
	}
	for _, pod := range pods {
		if _, chosen := instance.Status.ActivePods[pod.UID]; chosen && pod.Namespace == instance.Namespace {
			return pod
		}
	}
	return nil
}

// Run looks after the VMI until it is gone from this node or ctx ends. When it
// returns, no goroutine and no connection is left; the guest is not touched.
func (d *Driver) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.release()
	defer cancel()
	for ctx.Err() == nil {
		askAgain, hold := d.askForAbsent(ctx)
		if hold {
			d.sleep(ctx, askAgain)
			continue
		}
		d.refresh(ctx)
		plug, plugAfter := d.lookAtPlugs(ctx)
		o, changes := d.observe(plug, sooner(d.grow(ctx), plugAfter))
		step, after := vmi.Next(o)
		after = sooner(after, askAgain)
		if step == vmi.Release {
			d.log.Info("released the VMI")
			return
		}
		step, after = d.troubles.hold(step, after, o)
		if step == vmi.Wait {
			d.sleep(ctx, after)
			continue
		}
		err := d.act(ctx, step, o, changes)
		if ctx.Err() != nil {
			return
		}
		if step != vmi.Connect { // how that ended is not known yet
			d.troubles.note(step, err, d.env.Now())
		}
		if err != nil {
			d.log.Info("a step failed", "step", step, "reason", err.Error())
		}
	}
}

// sleep waits for news, for at most so long; 0 waits for news alone.
func (d *Driver) sleep(ctx context.Context, limit time.Duration) {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
	case <-d.wake:
	case <-timeout:
	}
}

func (d *Driver) act(ctx context.Context, step vmi.Step, o vmi.Observed, changes *changes) error {
	switch step {
	case vmi.Connect:
		d.connect(ctx, o.Pod.UID)
		return nil
	case vmi.Start:
		return d.start(ctx, o)
	case vmi.Attach:
		return d.attach(ctx, o)
	case vmi.Stop:
		d.stop(ctx, o)
		return nil
	case vmi.Kill:
		return d.kill()
	case vmi.Resume:
		return d.resume(ctx)
	case vmi.Begin:
		return d.begin(ctx, o.VMI)
	case vmi.Plug:
		d.plug(ctx, o)
		return nil
	case vmi.Report:
		return d.report(ctx, changes)
	}
	return nil
}

// observe gathers what is so, and the status that follows from it.
func (d *Driver) observe(plug bool, plugAfter time.Duration) (vmi.Observed, *changes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropDeadLink()
	d.dropDeadGuest()
	o := vmi.Observed{
		VMI: d.vmi, Deserted: d.absent.deserted, Node: d.env.Node, Pod: d.pod(), Attached: d.attached(),
		Plug: plug, PlugAfter: plugAfter, Now: d.env.Now(),
	}
	if o.Attached {
		d.observeRunState(&o)
	}
	switch {
	case d.exit != nil:
		o.Launcher = launch.State{Phase: launch.PhaseExited, Exit: d.exit}
	case d.link != nil:
		o.Link, o.Launcher = vmi.LinkUp, d.link.client.State()
		if d.troubles.step.step == vmi.Connect {
			d.troubles.step = trouble{}
		}
	case d.linking:
		o.Link = vmi.LinkPending
	}
	if d.linkFailure != nil {
		d.log.Info("a step failed", "step", vmi.Connect, "reason", d.linkFailure.Error())
		d.troubles.note(vmi.Connect, d.linkFailure, o.Now)
		d.linkFailure = nil
	}
	if d.stopping != nil {
		o.Stopping, o.StoppingSince = &d.stopping.grace, d.stopping.since
	}
	if d.vmi == nil || o.Deserted {
		return o, nil
	}
	changes := d.changes(o)
	o.Changed = changes.patch != nil || changes.err != nil
	return o, changes
}

// dropDeadLink forgets a connection that has ended. What it said of QEMU's end
// stays known.
func (d *Driver) dropDeadLink() {
	if d.link == nil {
		return
	}
	if exit := d.link.client.Exit(); exit != nil {
		d.exit = exit
	}
	select {
	case <-d.link.client.Done():
	default:
		return
	}
	d.closeGuest(d.guest)
	d.link.close()
	d.link, d.guest, d.prepared, d.stopping = nil, nil, nil, nil
}

// errMonitorEnded is a trouble that mostly ends by itself: QEMU's end closes its
// monitor a moment before virt-launcher can say how QEMU ended.
var errMonitorEnded = errors.New("the connection to QEMU's monitor has ended")

// monitorPause is that moment, on a machine that has much to do.
const monitorPause = 500 * time.Millisecond

// dropDeadGuest forgets a monitor that has ended, and lets some time pass before
// it is connected to again.
func (d *Driver) dropDeadGuest() {
	if d.guest == nil || d.guest.alive() {
		return
	}
	d.closeGuest(d.guest)
	d.guest = nil
	d.troubles.step = trouble{step: vmi.Attach, err: errMonitorEnded, attempts: 1, retry: d.env.Now().Add(monitorPause)}
}

func podOf(pod *corev1.Pod) *vmi.Pod {
	if pod == nil {
		return nil
	}
	p := &vmi.Pod{
		UID:      pod.UID,
		Finished: podstatus.Terminal(pod),
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			p.Ready = c.Status == corev1.ConditionTrue
		}
	}
	p.Interrupted = pod.DeletionTimestamp != nil || vmilifecycle.MarksNodeLost(pod)
	return p
}

// release ends everything that the driver owns.
func (d *Driver) release() {
	d.helpers.Wait() // whoever was connecting has done so, or has given up
	d.mu.Lock()
	d.closeGuest(d.guest)
	if d.link != nil {
		d.link.close()
	}
	d.link, d.guest = nil, nil
	d.mu.Unlock()
	d.helpers.Wait()
	d.env.Network.Teardown(d.uid)
}

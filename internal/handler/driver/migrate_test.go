package driver

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/certs/certstest"
	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/launcherclient/launchertest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// These tests migrate a guest between two nodes: two virt-handlers, two virt-launchers and two QEMUs of the test's own
// process use the real protocols, with TLS between the nodes. The test plays virt-controller.

const ours types.UID = "4d5e"

// generous has long limits, since none of these tests is about the virt-handlers' timeouts.
var generous = migrationproxy.Limits{Greeting: patience, Silence: patience}

// site is a node with its launcher pod.
type site struct {
	*node
	pod   *pod
	model *model
	// calls has the node's way to other nodes; serve accepts their calls at an address.
	calls migration.Node
	// cpus is the number of processors that virt-handler may use.
	cpus  int
	serve func(*migrationproxy.Expectations) (address string, stop func())
	// handler is the node's current virt-handler; stop ends it.
	handler *handler
	stop    func()
	// costs has the costs of migrations away from the node.
	costs chan metrics.Migrated
}

// voyage is a migration of the VMI web from node1 to node2.
type voyage struct {
	t        *testing.T
	api      *api
	from, to *site
	// release lets the transfer of the guest's memory complete.
	release func()
	// storage has the volumes of claims. Both nodes reach it.
	storage folders
}

// newVoyage starts the guest on node1. Its memory is being sent until release is called.
func newVoyage(t *testing.T) *voyage {
	t.Helper()
	return newVoyageOf(t, withoutScratch(scheduled("web")))
}

func newVoyageOf(t *testing.T, vmi *v1.VirtualMachineInstance) *voyage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: sockets in a pod belong to QEMU's user")
	}
	v := &voyage{t: t, api: newAPI(vmi), storage: folders(t.TempDir())}
	authority := certstest.NewAuthority(t)
	v.from, v.to = v.site(authority, "node1", "pod-of-web"), v.site(authority, "node2", "target-of-web")
	v.from.start()
	v.api.await(t, "a guest that runs", well)
	v.release = v.from.model.qemu.HoldMigration()
	return v
}

func (v *voyage) site(authority *certstest.Authority, name, pod string) *site {
	t := v.t
	t.Helper()
	dir, err := os.MkdirTemp("", name) // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, name: name, dir: dir, api: v.api, network: &noNetwork{}, volumes: v.storage}
	n.disks = func(context.Context, disk.Pod, *v1.VirtualMachineInstance) error { return nil }
	certificates := authority.Handler(t, name)
	s := &site{node: n, pod: n.newPod(v.api.vmi), costs: make(chan metrics.Migrated, 10)}
	n.migrated = func(m metrics.Migrated) { s.costs <- m }
	s.pod.object.UID, s.pod.object.Spec.NodeName = types.UID(pod), name
	s.calls.TLS = certificates.PeerClientConfig
	s.serve = func(e *migrationproxy.Expectations) (string, func()) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		server := migrationproxy.NewServer(e, certificates.PeerServerConfig(migrationwire.Protocol), nil, logOfServer(t))
		server.Limits = generous
		var serving sync.WaitGroup
		serving.Go(func() { server.Serve(ctx, listener) })
		return listener.Addr().String(), func() { cancel(); serving.Wait() }
	}
	s.model = n.migratingLauncher(pod)
	return s
}

// migratingLauncher starts the virt-launcher of a pod.
func (n *node) migratingLauncher(pod string) *model {
	n.t.Helper()
	m := &model{stopped: make(chan struct{}), private: launchertest.Private(n.dir, pod)}
	m.Launcher = launchertest.New(n.t, m.private)
	m.Recovered = m.recoverIncoming
	m.Started = func(start launch.Start) error {
		args := strings.Join(start.Args, " ")
		if at := strings.Index(args, "incoming-"); at >= 0 != start.Incoming {
			return errors.New("virt-launcher is not told what QEMU is told")
		}
		m.qemu = qmptest.New(n.t)
		if start.Incoming {
			m.qemu = qmptest.NewIncoming(n.t)
			m.qemu.AddObject(machine.MarkerType, machine.IncomingMarker(ours))
		} else {
			m.qemu.SetRunState(runstate.Running)
		}
		m.qemu.AddDisk(machine.DiskID("init"), 1<<20)
		m.qemu.AddNode(machine.NodeName("scratch"), 1<<30)
		m.qemu.SetFolder(layout.PrivateDir, m.private)
		if m.scripted != nil {
			m.scripted(m.qemu)
		}
		m.listen()
		m.launcherMonitor(n.t)
		qemu := m.qemu
		go func() {
			<-qemu.Ended()
			m.Exit(exitOf(qemu, start.Incoming))
		}()
		return nil
	}
	var once sync.Once
	m.Stopped = func(launch.Stop) {
		once.Do(func() { close(m.stopped) })
		if m.qemu == nil {
			m.Exit(launch.Exit{Reason: launch.ReasonHostShutdown, Incoming: launch.IncomingNeverRan})
			return
		}
		m.qemu.Exit()
	}
	return m
}

// launcherMonitor connects virt-launcher's monitor, by which it hears of a broken post-copy.
func (m *model) launcherMonitor(t *testing.T) {
	qemu := m.qemu
	var known launch.Arrival
	client, err := qmp.NewOutOfBand(t.Context(), qemu.Dial(), func(e qmp.Event) {
		var d struct {
			Status migrationstatus.Status `json:"status"`
		}
		if e.Name != "MIGRATION" || json.Unmarshal(e.Data, &d) != nil {
			return
		}
		arrival := launch.Arrival{Broken: migrationstatus.StreamBroken(known.Broken, d.Status)}
		arrival.Ran = arrival.Broken && qemu.Executed("cont") > 0
		if arrival != known {
			known = arrival
			m.Arrival(arrival)
		}
	})
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = client.Close() })
	m.outOfBand = client
}

func (m *model) recoverIncoming() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	uri := "unix:" + layout.Socket(layout.MigrationSocket)
	return m.outOfBand.ExecuteOutOfBand(ctx, "migrate-recover", map[string]any{"uri": uri}, nil)
}

// exitOf returns virt-launcher's report about a QEMU that has ended.
func exitOf(qemu *qmptest.Server, incoming bool) launch.Exit {
	exit := launch.Exit{Reason: launch.ReasonHostShutdown}
	switch {
	case incoming && qemu.Executed("cont") > 0:
		exit.Incoming = launch.IncomingRan
	case incoming:
		exit.Incoming = launch.IncomingNeverRan
	case qemu.RunState() == runstate.PostMigrate && qemu.MigrationStatus() == "completed":
		exit.Reason = launch.ReasonMigrated
	}
	return exit
}

// monitor returns virt-launcher's own monitor.
func (m *model) monitor(t *testing.T) *qmp.Client {
	t.Helper()
	c, err := qmp.New(t.Context(), m.qemu.Dial(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts the node's virt-handler.
func (s *site) start() {
	s.t.Helper()
	expected := &migrationproxy.Expectations{}
	address, stop := s.serve(expected)
	s.migration = &migration.Node{TLS: s.calls.TLS, Expected: expected, Address: func() string { return address }, CPUs: s.cpus, Limits: generous}
	s.handler = s.startHandler(s.pod)
	s.stop = sync.OnceFunc(func() {
		s.handler.stop()
		stop()
	})
	s.t.Cleanup(s.stop)
}

// restart ends a virt-handler and starts the next.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// tell writes facts as virt-controller.
func (v *voyage) tell(facts vmistatus.Migration, labels map[string]string) {
	v.t.Helper()
	facts.Of = ours
	v.api.update(func(vmi *v1.VirtualMachineInstance) {
		vmi.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{Now: time.Now(), Migration: facts})
		for key, value := range labels {
			if vmi.Labels[key] = value; value == "" {
				delete(vmi.Labels, key)
			}
		}
	})
}

// begin names the target's pod.
func (v *voyage) begin(config *v1.VMIMConfigurationOptions) {
	v.t.Helper()
	v.tell(vmistatus.Migration{Begin: &vmistatus.MigrationBegin{
		UID: ours, SourceNode: "node1", SourcePod: launcherpod.CurrentName(v.api.vmi), TargetNode: "node2",
		TargetPod: launcherpod.TargetName(v.api.vmi, ours), TargetPodUID: v.to.pod.object.UID, Configuration: config,
	}}, map[string]string{v1.MigrationTargetNodeNameLabel: "node2"})
}

// arrive moves the VMI to node2.
func (v *voyage) arrive() {
	v.t.Helper()
	v.tell(vmistatus.Migration{Arrived: &vmistatus.Arrival{Image: "image"}},
		map[string]string{v1.NodeNameLabel: "node2", v1.MigrationTargetNodeNameLabel: ""})
}

func state(reached func(*v1.VirtualMachineInstanceMigrationState) bool) func(*v1.VirtualMachineInstance) bool {
	return func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.MigrationState != nil && reached(vmi.Status.MigrationState)
	}
}

var (
	started   = state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.StartTimestamp != nil })
	addressed = state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.TargetNodeAddress != "" })
	completed = state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.Completed })
	failedNow = state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.Failed })
)

// awaitTrue waits for a condition that has no event.
func awaitTrue(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// copies waits until QEMU sends the guest's memory.
func (v *voyage) copies() {
	v.t.Helper()
	awaitTrue(v.t, "a migration that copies", func() bool { return v.from.model.qemu.MigrationStatus() == "active" })
}

// beginAndCopy begins a migration, and waits until QEMU sends the guest's memory.
func (v *voyage) beginAndCopy(config *v1.VMIMConfigurationOptions) {
	v.t.Helper()
	v.begin(config)
	v.to.start()
	v.api.await(v.t, "the start", started)
	v.copies()
}

// alone checks that one guest runs, on the right node.
func (v *voyage) alone(where, elsewhere *site) {
	v.t.Helper()
	if state := where.model.qemu.RunState(); state != runstate.Running {
		v.t.Errorf("the guest on %s is %s", where.name, state)
	}
	select {
	case <-elsewhere.model.qemu.Ended():
	default:
		if state := elsewhere.model.qemu.RunState(); state == runstate.Running {
			v.t.Errorf("the guest runs on %s, too", elsewhere.name)
		}
	}
}

// pausesAndRuns pauses and unpauses the guest of a node.
func (s *site) pausesAndRuns() *v1.VirtualMachineInstance {
	s.t.Helper()
	guest := s.machine(s.handler, "web")
	s.api.await(s.t, "a guest that runs", well)
	if err := guest.Pause(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.api.await(s.t, "a paused guest", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	if err := guest.Unpause(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return s.api.await(s.t, "a guest that runs", well)
}

// migrated returns the events about guests that have arrived elsewhere.
func (v *voyage) migrated() []string {
	_, _, events := v.api.counts()
	return slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, v1.Migrated.String()) })
}

// connected checks on which node the guest was connected to its networks; nil for none.
func (v *voyage) connected(where *site) {
	v.t.Helper()
	for _, s := range []*site{v.from, v.to} {
		if got := s.network.(*noNetwork).isConnected(v.api.vmi.UID); got != (s == where) {
			v.t.Errorf("that %s has connected the guest is %v", s.name, got)
		}
	}
}

// toldOfTheCost checks the report about a migration that one virt-handler has seen from its beginning: one event, and
// the same figures in metrics.
func (v *voyage) toldOfTheCost() {
	v.t.Helper()
	said := regexp.MustCompile(`^Normal Migrated: The guest has migrated from node node1 to node node2 in [0-9.]+ s; it stood still for at most [0-9]+ m?s; QEMU sent 1 MiB$`)
	if events := v.migrated(); len(events) != 1 || !said.MatchString(events[0]) {
		v.t.Errorf("the events are %q", events)
	}
	if len(v.from.costs) != 1 || len(v.to.costs) != 0 {
		v.t.Fatalf("%d migrations were counted at the source, %d at the target", len(v.from.costs), len(v.to.costs))
	}
	if cost := <-v.from.costs; cost.Downtime <= 0 || cost.Duration < cost.Downtime || cost.SentBytes != 1<<20 {
		v.t.Errorf("the migration has cost %+v", cost)
	}
}

func TestAGuestMigrates(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	before, _, _ := v.api.counts()
	began := time.Now()
	v.beginAndCopy(nil)
	awaitTrue(t, "figures of the migration", func() bool {
		usages := v.from.handler.supervisor.Usage(t.Context())
		return len(usages) == 1 && usages[0].Migration != nil && usages[0].Migration.Processed == 1<<20
	})
	if usages := v.to.handler.supervisor.Usage(t.Context()); len(usages) > 0 {
		t.Errorf("the target has figures: %+v", usages)
	}
	v.connected(nil)
	v.release()
	done := v.api.await(t, "the completion", completed)
	v.connected(v.to)
	if m := done.Status.MigrationState; !m.TargetNodeDomainDetected || m.TargetNodeDomainReadyTimestamp == nil || m.EndTimestamp == nil || m.Mode != v1.MigrationPreCopy || m.Failed {
		t.Errorf("the migration is %+v", m)
	}
	if m, err := v.to.handler.supervisor.Lookup("shop", "web", "web"); err == nil {
		t.Errorf("node2 serves the guest before it is the VMI's: %v", m)
	}
	<-v.from.model.qemu.Ended()
	v.alone(v.to, v.from)
	v.toldOfTheCost()
	v.arrive()
	running := v.to.pausesAndRuns()
	if running.Status.Phase != v1.Running || v.from.model.qemu.Executed("cont") > 0 || v.to.model.qemu.Executed("cont") != 2 {
		t.Errorf("phase %s; QEMU was told to run %d times at the source and %d at the target", running.Status.Phase,
			v.from.model.qemu.Executed("cont"), v.to.model.qemu.Executed("cont"))
	}
	// The writes are: address, start, completed, node2's usual writes about a guest, a pause and its end, and the
	// progress now and then.
	most := 6 + int(time.Since(began)/vmistatus.ProgressInterval)
	if after, _, _ := v.api.counts(); after-before > most {
		t.Errorf("the migration cost %d patches: %v", after-before, v.api.patches[before:])
	}
	awaitTrue(t, "the end of node1's driver", func() bool {
		v.from.handler.supervisor.mu.Lock()
		defer v.from.handler.supervisor.mu.Unlock()
		return len(v.from.handler.supervisor.drivers) == 0
	})
	// The guest ends like any other.
	v.api.update(remove)
	v.api.await(t, "the end", phase(v1.Succeeded))
}

func TestAMigrationIsAborted(t *testing.T) {
	v := newVoyage(t)
	v.beginAndCopy(nil)
	v.tell(vmistatus.Migration{Abort: true}, nil)
	failed := v.api.await(t, "the failure", failedNow)
	if m := failed.Status.MigrationState; m.FailureReason != "the migration was aborted" || m.AbortStatus != v1.MigrationAbortSucceeded || m.Completed || m.EndTimestamp == nil {
		t.Errorf("the migration is %+v", m)
	}
	<-v.to.model.qemu.Ended()
	v.alone(v.from, v.to)
	if v.to.model.qemu.Executed("cont") > 0 {
		t.Error("the target was told to run")
	}
	v.api.await(t, "a guest that runs", well)
	if events := v.migrated(); len(events) > 0 || len(v.from.costs) > 0 {
		t.Errorf("the guest is where it was, and the events are %q", events)
	}
}

func TestAVMIIsDeletedWhileItMigrates(t *testing.T) {
	v := newVoyage(t)
	v.beginAndCopy(nil)
	v.api.update(remove)
	v.api.await(t, "the end", phase(v1.Succeeded))
	<-v.from.model.qemu.Ended()
	<-v.to.model.qemu.Ended()
	if v.to.model.qemu.Executed("cont") > 0 {
		t.Error("the target was told to run")
	}
}

// TestATargetsVirtHandlerIsRestartedBeforeItsGuestComes: QEMU already waits for the guest, but does not report that.
func TestATargetsVirtHandlerIsRestartedBeforeItsGuestComes(t *testing.T) {
	v := newVoyage(t)
	tried := make(chan struct{}, 100)
	v.from.model.qemu.Override("migrate-set-parameters", func(json.RawMessage) (any, error) {
		tried <- struct{}{}
		return nil, errors.New("not yet")
	})
	v.begin(nil)
	v.to.start()
	<-tried
	if v.to.model.qemu.Executed("migrate-incoming") != 1 {
		t.Fatal("the target's QEMU does not wait for its guest")
	}
	v.to.restart()
	v.from.model.qemu.Override("migrate-set-parameters", nil)
	v.copies()
	v.release()
	v.api.await(t, "the completion", completed)
	<-v.from.model.qemu.Ended()
	v.alone(v.to, v.from)
}

func TestAVirtHandlerIsRestartedBeforeTheSwitchover(t *testing.T) {
	for name, restart := range map[string]func(*voyage){
		"at the source": func(v *voyage) { v.from.restart() },
		"at the target": func(v *voyage) { v.to.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoyage(t)
			v.beginAndCopy(nil)
			restart(v)
			v.api.await(t, "the failure", failedNow)
			<-v.to.model.qemu.Ended()
			v.alone(v.from, v.to)
			v.api.await(t, "a guest that runs", well)
		})
	}
}

// TestAVirtHandlerIsRestartedDuringTheSwitchover: whatever the result, one guest runs in the end, and the VMI names its
// node.
func TestAVirtHandlerIsRestartedDuringTheSwitchover(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"pre-switchover", "completed"} {
		for _, side := range []string{"source", "target"} {
			t.Run(at+", "+side, func(t *testing.T) {
				v := newVoyage(t)
				v.beginAndCopy(nil)
				v.release()
				awaitTrue(t, at, func() bool {
					return slices.Contains([]string{at, "completed"}, v.from.model.qemu.MigrationStatus())
				})
				restarted := map[string]*site{"source": v.from, "target": v.to}[side]
				restarted.stop()
				if side == "source" && v.from.model.qemu.MigrationStatus() == "pre-switchover" {
					v.unattended()
				}
				restarted.start()
				done := v.api.await(t, "an end of the migration", func(vmi *v1.VirtualMachineInstance) bool { return completed(vmi) || failedNow(vmi) })
				if done.Status.MigrationState.Completed {
					<-v.from.model.qemu.Ended()
					v.alone(v.to, v.from)
					// A second virt-handler may not know the first one's events.
					if events := v.migrated(); len(events) == 0 {
						t.Error("there is no event of the migration")
					}
					return
				}
				<-v.to.model.qemu.Ended()
				v.alone(v.from, v.to)
			})
		}
	}
}

// unattended cancels the migration, as virt-launcher does for a stopped guest without a virt-handler.
func (v *voyage) unattended() {
	v.t.Helper()
	c := v.from.model.monitor(v.t)
	if err := c.Execute(v.t.Context(), "migrate_cancel", nil, nil); err != nil {
		v.t.Fatal(err)
	}
	_ = c.Close()
}

func TestATargetEndsBeforeTheGuestHasRun(t *testing.T) {
	v := newVoyage(t)
	v.beginAndCopy(nil)
	// The target loads the guest, and never hears that the source has let go.
	v.to.model.qemu.Override("object-add", func(json.RawMessage) (any, error) { return nil, errors.New("QEMU is stuck") })
	v.release()
	awaitTrue(t, "a source that has sent its guest", func() bool { return v.from.model.qemu.MigrationStatus() == "completed" })
	v.to.model.qemu.Exit()
	failed := v.api.await(t, "the failure", failedNow)
	if m := failed.Status.MigrationState; m.FailureReason != "the target's QEMU has ended" {
		t.Errorf("the reason is %q", m.FailureReason)
	}
	awaitTrue(t, "a guest that runs", func() bool { return v.from.model.qemu.RunState() == runstate.Running })
	v.alone(v.from, v.to)
	v.api.await(t, "a guest that runs", well)
}

func TestAMigrationThatTakesTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.begin(&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(0)), ProgressTimeout: new(int64(1))})
	v.from.model.qemu.SetMemory(1<<20, 1<<30)
	v.to.start()
	v.api.await(t, "the start", started)
	v.copies()
	elapsed := time.Duration(0)
	awaitTrue(t, "the end of a migration whose time goes by", func() bool {
		elapsed += time.Second
		v.from.model.qemu.SetElapsed(elapsed)
		stored, err := v.api.VMI(t.Context(), "", "")
		return err == nil && failedNow(stored)
	})
	failed := v.api.await(t, "the failure", failedNow)
	if m := failed.Status.MigrationState; !strings.Contains(m.FailureReason, "nothing was transferred") {
		t.Errorf("the reason is %q", m.FailureReason)
	}
	<-v.to.model.qemu.Ended()
	v.alone(v.from, v.to)
}

// TestAMigrationThatTakesTooLongStopsTheGuest where that is allowed: the guest arrives, or continues at the source.
func TestAMigrationThatTakesTooLongStopsTheGuest(t *testing.T) {
	t.Parallel()
	for name, aborted := range map[string]bool{"and it arrives": false, "and it is aborted": true} {
		t.Run(name, func(t *testing.T) {
			v := newVoyage(t)
			v.begin(&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(1)), ProgressTimeout: new(int64(0)), AllowPostCopy: new(true)})
			v.to.model.scripted = (*qmptest.Server).RefusePostCopy
			v.to.start()
			v.api.await(t, "the start", started)
			v.copies()
			v.from.model.qemu.SetElapsed(time.Hour)
			v.api.await(t, "a guest that stands still", reports(runstate.ReasonMigrating, ""))
			if !v.from.model.qemu.HasObject(machine.PausedMarker(ours)) || v.from.model.qemu.Executed("stop") != 1 {
				t.Errorf("QEMU was told %q", v.from.model.qemu.Commands())
			}
			v.toldOfTheStop()
			if aborted {
				v.tell(vmistatus.Migration{Abort: true}, nil)
				v.api.await(t, "the failure", failedNow)
				<-v.to.model.qemu.Ended()
				v.api.await(t, "a guest that runs", well)
				v.alone(v.from, v.to)
				return
			}
			v.release()
			v.api.await(t, "the completion", completed)
			<-v.from.model.qemu.Ended()
			v.alone(v.to, v.from)
		})
	}
}

func TestAPausedGuestIsNotMigrated(t *testing.T) {
	v := newVoyage(t)
	if err := v.from.machine(v.from.handler, "web").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.api.await(t, "a paused guest", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	v.begin(nil)
	v.to.start()
	failed := v.api.await(t, "the failure", failedNow)
	if m := failed.Status.MigrationState; !strings.Contains(m.FailureReason, "the guest does not run") || m.StartTimestamp != nil {
		t.Errorf("the migration is %+v", m)
	}
	if v.from.model.qemu.Executed("migrate") > 0 {
		t.Error("QEMU was told to migrate")
	}
	<-v.to.model.qemu.Ended()
}

// TestTheSourcesSocketIsQEMUsAlone: other processes can't use it, and it is removed with the migration.
func TestTheSourcesSocketIsQEMUsAlone(t *testing.T) {
	v := newVoyage(t)
	v.begin(nil)
	v.to.start()
	v.api.await(t, "the target's address", addressed)
	v.api.await(t, "the start", started)
	v.copies()
	info, err := os.Stat(v.from.model.private + "/" + layout.MigrationSocket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the source's socket: %v, %v", info, err)
	}
	v.tell(vmistatus.Migration{Abort: true}, nil)
	v.api.await(t, "the failure", failedNow)
	awaitTrue(t, "the socket's end", func() bool {
		_, err := os.Stat(v.from.model.private + "/" + layout.MigrationSocket)
		return os.IsNotExist(err)
	})
}

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/launcherclient/launchertest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// These tests need neither root nor QEMU: virt-launcher and QEMU are models in the test's own process that use the real
// protocols (launchertest, qmptest).

// noNetwork gives each interface of a guest an address and makes no network.
type noNetwork struct {
	mu       sync.Mutex
	tornDown []types.UID
	// awaiting has the VMIs whose guests are not connected, connected those whose guests were.
	awaiting, connected []types.UID
	// made has the interfaces on secondary networks that were set up; kept is the argument of the last RemoveLeftovers.
	made map[string]bool
	kept []string
	// setUps counts the calls of Setup.
	setUps int
	// loose has the interfaces that the pod has lost.
	loose []string
}

func (n *noNetwork) Setup(_ context.Context, pod network.Pod, instance *v1.VirtualMachineInstance) ([]network.Interface, error) {
	if pod.NetNS == nil || pod.ResolvConf == "" {
		return nil, errors.New("the pod has no network namespace, or no DNS settings")
	}
	if pod.Awaits {
		n.mu.Lock()
		n.awaiting = append(n.awaiting, instance.UID)
		n.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setUps++
	var list []network.Interface
	for _, i := range instance.Spec.Domain.Devices.Interfaces {
		if i.State == v1.InterfaceStateAbsent {
			continue
		}
		if nichotplug.OnMultus(instance, i.Name) {
			if pod.Runs && !n.made[i.Name] && !slices.Contains(pod.Comes, i.Name) {
				continue
			}
			if n.made == nil {
				n.made = map[string]bool{}
			}
			n.made[i.Name] = true
			device := pod.Devices[layout.SecondaryInterface(i.Name)]
			list = append(list, network.Interface{Name: i.Name, Tap: "tap-" + i.Name, Device: device, MAC: "02:00:00:00:00:02", Queues: 1, PodInterface: "pod-" + i.Name})
			continue
		}
		list = append(list, network.Interface{Name: i.Name, Tap: "tap0", MAC: "02:00:00:00:00:01", MTU: 1500, Queues: 1, IPs: []string{"10.244.9.5"}, Way: network.InPod, PodInterface: "eth0"})
	}
	return list, nil
}

// Dial returns its arguments: the namespace's file, the interface and the port.
func (n *noNetwork) Dial(_ context.Context, namespace *os.File, to network.Interface, protocol string, port int) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		_, _ = fmt.Fprintln(there, namespace.Name(), to.Name, protocol, port)
		_ = there.Close()
	}()
	return here, nil
}

func (n *noNetwork) Connect(pod network.Pod, instance *v1.VirtualMachineInstance) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod.NetNS == nil || !slices.Contains(n.awaiting, instance.UID) {
		return errors.New("the pod has no network namespace, or its guest is connected already")
	}
	n.connected = append(n.connected, instance.UID)
	return nil
}

// isConnected reports whether an arriving guest was connected.
func (n *noNetwork) isConnected(vmi types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.connected, vmi)
}

func (n *noNetwork) Disconnected(_ network.Pod, names []string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.loose), func(name string) bool { return !slices.Contains(names, name) }), nil
}

// loses sets the interfaces that the pod has lost; no names for none.
func (n *noNetwork) loses(names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loose = names
}

func (n *noNetwork) RemoveLeftovers(_ network.Pod, keep []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = keep
	maps.DeleteFunc(n.made, func(name string, _ bool) bool { return !slices.Contains(keep, name) })
	return nil
}

// has lists the interfaces on secondary networks that are set up.
func (n *noNetwork) has() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.made))
}

// times returns the number of calls of Setup.
func (n *noNetwork) times() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setUps
}

func (n *noNetwork) Teardown(vmi types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tornDown = append(n.tornDown, vmi)
}

// model is a launcher pod whose virt-launcher and QEMU are models.
type model struct {
	*launchertest.Launcher
	qemu    *qmptest.Server
	private string
	// outOfBand is virt-launcher's monitor in a migration.
	outOfBand *qmp.Client
	// stopped is closed when virt-launcher is asked to stop QEMU.
	stopped chan struct{}
	// scripted lets a test change a QEMU that is about to start; nil for no change.
	scripted func(*qmptest.Server)
}

// newModelNode returns a node without programs and mounts.
func newModelNode(t *testing.T, instance *v1.VirtualMachineInstance) *node {
	t.Helper()
	n := newNode(t, instance)
	dir, err := os.MkdirTemp("", "node") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n.dir, n.network = dir, &noNetwork{}
	n.disks = func(context.Context, disk.Pod, *v1.VirtualMachineInstance) error { return nil }
	return n
}

// launcher starts the virt-launcher of the VMI's pod. Its QEMU runs the guest once it is started, and ends on request.
func (n *node) launcher() *model {
	n.t.Helper()
	m := &model{stopped: make(chan struct{}), qemu: qmptest.New(n.t), private: launchertest.Private(n.dir, "pod-of-"+string(n.api.vmi.UID))}
	m.Launcher = launchertest.New(n.t, m.private)
	spec := n.api.vmi.Spec.DeepCopy()
	m.Started = func(start launch.Start) error {
		for i := range spec.Domain.Devices.Disks {
			if name := spec.Domain.Devices.Disks[i].Name; nodehotplug.Claim(spec, name) == "" {
				m.qemu.AddDisk(machine.DiskID(name), 1<<20)
			}
		}
		m.listen()
		if strings.Contains(strings.Join(start.Args, " "), machine.WaitMarker) {
			m.qemu.AddObject(machine.MarkerType, machine.WaitMarker)
			return nil
		}
		m.qemu.SetRunState(runstate.Running)
		return nil
	}
	var once sync.Once
	m.Stopped = func(stop launch.Stop) {
		once.Do(func() { close(m.stopped) })
		reason := stop.Failure
		if reason == "" {
			reason = launch.ReasonHostShutdown
		}
		m.end(reason)
	}
	return m
}

// listen makes QEMU open its monitor.
func (m *model) listen() { m.qemu.Listen(filepath.Join(m.private, layout.QMPSocket)) }

// end ends QEMU.
func (m *model) end(reason launch.Reason) {
	m.qemu.Exit()
	m.Exit(launch.Exit{Reason: reason})
}

// starts returns how often virt-launcher was asked to start QEMU.
func (m *model) starts() int {
	count := 0
	for _, r := range m.Requests() {
		if r.Start != nil {
			count++
		}
	}
	return count
}

// driven returns a node with a running guest.
func driven(t *testing.T, uid string) (*node, *model, *handler) {
	t.Helper()
	n := newModelNode(t, scheduled(uid))
	m := n.launcher()
	h := n.startHandler(n.newPod(n.api.vmi))
	n.api.await(t, "a guest that runs", well)
	return n, m, h
}

func TestALifeCostsTwoPatches(t *testing.T) {
	n, m, h := driven(t, "life")
	running := n.api.await(t, "phase Running", phase(v1.Running))
	want := []v1.VirtualMachineInstanceNetworkInterface{{
		Name: "default", MAC: "02:00:00:00:00:01", IP: "10.244.9.5", IPs: []string{"10.244.9.5"},
		PodInterfaceName: "eth0", InfoSource: "domain", QueueCount: 1, LinkState: "up",
	}}
	if diff := cmp.Diff(want, running.Status.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	awaitTrue(t, "the guest's figures", func() bool {
		usages := h.supervisor.Usage(t.Context())
		return len(usages) == 1 && usages[0].Name == "web" && usages[0].Guest[metrics.Domain] == metrics.Known(64<<20) && len(usages[0].Drives) == 2
	})
	n.api.update(remove)
	n.api.await(t, "the end", phase(v1.Succeeded))
	h.supervisor.VMIGone(Here, "life")
	h.stop()
	patches, outdated, events := n.api.counts()
	if patches != 2 || outdated != 0 || m.starts() != 1 {
		t.Errorf("a life cost %d patches, %d that were out of date and %d starts: %v", patches, outdated, m.starts(), n.api.patches)
	}
	if diff := cmp.Diff([]string{"Normal Started: VirtualMachineInstance started."}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if of := n.network.(*noNetwork).tornDown; len(of) != 1 || of[0] != "life" {
		t.Errorf("networks were taken down of %v", of)
	}
}

func TestATakeoverWritesNothing(t *testing.T) {
	n, m, first := driven(t, "takeover")
	if err := n.machine(first, "takeover").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a paused guest", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	first.stop()
	before, _, _ := n.api.counts()
	second := n.startHandler(n.newPod(n.api.vmi))
	taken := n.machine(second, "takeover")
	if err := taken.Pause(t.Context()); err == nil || !strings.Contains(err.Error(), "VMI is already paused") {
		t.Errorf("pausing it again: %v", err)
	}
	if after, _, _ := n.api.counts(); after != before || m.starts() != 1 {
		t.Errorf("taking over wrote %v; QEMU was started %d times", n.api.patches[before:], m.starts())
	}
	if err := taken.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that runs", well)
}

func TestAMonitorThatEndsIsConnectedToAgain(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "monitor")
	before := n.machine(h, "monitor")
	m.qemu.Exit()
	m.qemu = qmptest.New(t)
	m.qemu.SetRunState("watchdog")
	m.listen()
	n.api.await(t, "what the new monitor says", reports(runstate.ReasonPausedByWatchdog, runstate.ReasonPausedByWatchdog))
	if n.machine(h, "monitor").QEMU == before.QEMU || m.starts() != 1 {
		t.Errorf("the old monitor is still in use, or QEMU was started anew: %d", m.starts())
	}
}

// TestEachRunState: it checks the VMI's status in each run state that a guest can leave, and the guest's end in the
// others.
func TestEachRunState(t *testing.T) {
	t.Parallel()
	for _, state := range append(runstate.All(), runstate.Of("hibernating")) {
		t.Run(state.Name, func(t *testing.T) {
			n, m, _ := driven(t, "state")
			m.qemu.EnterRunState(state.Name, "STOP")
			if state.Action == runstate.End {
				ended := n.api.await(t, "the end", ended)
				wantPhase := v1.Succeeded
				if state.Failure != "" {
					wantPhase = v1.Failed
				}
				if ended.Status.Phase != wantPhase || ended.Status.Reason != string(state.Failure) {
					t.Errorf("%s, reason %q", ended.Status.Phase, ended.Status.Reason)
				}
				if c := condition(ended, v1.VirtualMachineInstanceReady); c == nil || state.Failure != "" && !strings.HasPrefix(c.Message, vmistatus.EndMessage(state.Failure)) {
					t.Errorf("Ready says %v", c)
				}
				return
			}
			wantPaused := ""
			if state.Paused {
				wantPaused = state.Reason
			}
			got := n.api.await(t, "what the state says", reports(state.Reason, wantPaused))
			if c := condition(got, v1.VirtualMachineInstanceReady); state.Name != runstate.IOError && c.Message != state.Message {
				t.Errorf("Ready says %q, want %q", c.Message, state.Message)
			}
			m.qemu.EnterRunState(runstate.Running, "RESUME")
			n.api.await(t, "a guest that runs again", well)
		})
	}
}

func TestAnIOErrorIsOneEvent(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "full")
	n.pass(-time.Minute) // otherwise virt-handler may resume the guest before its user pauses it
	m.qemu.FailDisk(machine.DiskID("scratch"), "nospace")
	stopped := n.api.await(t, "a guest stopped by its disk", reports(runstate.ReasonPausedIOError, runstate.ReasonPausedIOError))
	const message = "The guest is stopped: there is no space left for disk scratch. It continues by itself when that works again."
	if c := condition(stopped, v1.VirtualMachineInstanceReady); c.Message != message {
		t.Errorf("Ready says %q", c.Message)
	}
	if err := n.machine(h, "full").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a pause besides", reports(runstate.ReasonPausedIOError, runstate.ReasonPausedByUser))
	n.stopped.Store(nil)
	if err := n.machine(h, "full").Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that runs", well)
	if diff := cmp.Diff([]string{"Warning IOerror: " + message}, n.api.ioErrors()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestNothingIsStartedThatShouldNot(t *testing.T) {
	for name, change := range map[string]func(*v1.VirtualMachineInstance){
		"the VMI is to go": remove,
		"virt-controller chose another pod": func(instance *v1.VirtualMachineInstance) {
			instance.Status.ActivePods = map[types.UID]string{"another": "node1"}
		},
		"the guest ran, as its status says": func(instance *v1.VirtualMachineInstance) { instance.Status.Phase = v1.Running },
	} {
		instance := scheduled("nothing")
		change(instance)
		n := newModelNode(t, instance)
		m := n.launcher()
		n.startHandler(n.newPod(n.api.vmi))
		time.Sleep(100 * time.Millisecond) // the absence of an action has no event
		if m.starts() > 0 {
			t.Errorf("%s: QEMU was started", name)
		}
	}
}

func TestAStepThatFailsIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	n := newModelNode(t, scheduled("broken"))
	var mu sync.Mutex
	broken := errors.New("the Secret has no key")
	n.disks = func(context.Context, disk.Pod, *v1.VirtualMachineInstance) error {
		mu.Lock()
		defer mu.Unlock()
		return broken
	}
	m := n.launcher()
	n.startHandler(n.newPod(n.api.vmi))
	failing := n.api.await(t, "condition Synchronized", func(instance *v1.VirtualMachineInstance) bool {
		return condition(instance, v1.VirtualMachineInstanceSynchronized) != nil
	})
	if c := condition(failing, v1.VirtualMachineInstanceSynchronized); !strings.Contains(c.Message, "the Secret has no key") || m.starts() > 0 {
		t.Errorf("Synchronized: %v; QEMU was started %d times", c, m.starts())
	}
	mu.Lock()
	broken = nil
	mu.Unlock()
	running := n.api.await(t, "phase Running", phase(v1.Running))
	if c := condition(running, v1.VirtualMachineInstanceSynchronized); c != nil {
		t.Errorf("Synchronized is still there: %v", c)
	}
}

func TestAGuestWithoutItsVMIOrPodIsEnded(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*node, *handler){
		"the VMI's finalizers were taken away": func(n *node, h *handler) {
			n.api.remove(true, false)
			h.supervisor.VMIGone(Here, "orphan")
		},
		"the pod was deleted by force": func(n *node, h *handler) {
			n.api.remove(false, true)
			h.supervisor.PodGone(n.newPod(n.api.vmi).object)
		},
	} {
		n, m, h := driven(t, "orphan")
		take(n, h)
		select {
		case <-m.stopped:
		case <-time.After(patience):
			t.Fatalf("%s: its guest goes on", name)
		}
	}
}

// hotpluggable returns a VMI with a hotpluggable boot disk.
func hotpluggable(uid string) *v1.VirtualMachineInstance {
	instance := withoutScratch(scheduled(uid))
	v := v1.Volume{Name: "a"}
	v.DataVolume = &v1.DataVolumeSource{Name: "claim-a", Hotpluggable: true}
	instance.Spec.Volumes = append(instance.Spec.Volumes, v)
	instance.Spec.Domain.Devices.Disks = append(instance.Spec.Domain.Devices.Disks, v1.Disk{
		Name: "a", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
	})
	return instance
}

// TestAGuestStartsWithoutAVolumeThatIsRemoved: until then it waits, paused or not.
func TestAGuestStartsWithoutAVolumeThatIsRemoved(t *testing.T) {
	n := newModelNode(t, hotpluggable("waits"))
	m := n.launcher()
	h := n.startHandler(n.newPod(n.api.vmi))
	n.api.await(t, "a guest that waits", waits)
	if err := n.machine(h, "waits").SoftReboot(t.Context()); err == nil || !strings.Contains(err.Error(), "it waits for volumes") {
		t.Errorf("rebooting it: %v", err)
	}
	if m.qemu.Executed("cont") > 0 {
		t.Error("its CPUs were started")
	}
	n.api.update(dropA)
	n.api.await(t, "a guest that runs", well)
	if m.qemu.HasObject(machine.WaitMarker) {
		t.Error("the marker is still there")
	}
}

// folders has the volumes of claims in folders that no kubelet has mounted.
type folders string

func (f folders) Open(id podpath.VolumeID) (*podpath.Volume, error) {
	folder, err := podpath.Open(filepath.Join(string(f), id.Name))
	if err != nil {
		return nil, err
	}
	return &podpath.Volume{Folder: folder}, nil
}

// TestAGuestStartsWithItsHotpluggableDisk: the disk is in the guest's boot order before its CPUs run.
func TestAGuestStartsWithItsHotpluggableDisk(t *testing.T) {
	instance := hotpluggable("boots")
	hot := &instance.Spec.Domain.Devices.Disks[len(instance.Spec.Domain.Devices.Disks)-1]
	hot.BootOrder, hot.Disk.ReadOnly = new(uint(1)), true // QEMU's user does not own a disk that is only read
	n := newModelNode(t, instance)
	n.volumes = folders(t.TempDir())
	dir := filepath.Join(string(n.volumes.(folders)), "volume-of-claim-a")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, layout.DiskImage), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	m := n.launcher()
	h := n.startHandler(n.newPod(n.api.vmi))
	n.api.await(t, "a guest that waits", waits)
	attachment := runningAttachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	n.api.update(status(want("a", "claim-a", v1.DiskBusSCSI, attachment)))
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
	n.api.await(t, "a guest that runs", well)
	if got := m.qemu.BootIndex(machine.DiskID("a")); got < 1 || m.qemu.HasObject(machine.WaitMarker) {
		t.Errorf("the disk's place in the boot order is %d, the marker is there: %v", got, m.qemu.HasObject(machine.WaitMarker))
	}
	n.api.update(dropA)
	n.api.await(t, "volume a UnMountedFromPod", in("a", v1.HotplugVolumeUnMounted))
	if m.qemu.HasDevice(machine.DiskID("a")) {
		t.Error("QEMU still has the disk")
	}
}

// TestTheAgentsAnswersAreReported: the agent also answers users' queries.
func TestTheAgentsAnswersAreReported(t *testing.T) {
	n, m, h := driven(t, "agent")
	guest := n.machine(h, "agent")
	if _, err := guest.UserList(t.Context()); err == nil || !strings.Contains(err.Error(), "VMI does not have guest agent connected") {
		t.Errorf("without an agent: %v", err)
	}
	if err := guest.SoftReboot(t.Context()); err != nil || m.qemu.Executed("send-key") != 1 {
		t.Errorf("a reboot without an agent: %v; QEMU was told %v", err, m.qemu.Commands())
	}
	connected := n.connectAgent(m, func(string) {})
	if connected.Status.Phase != v1.Running {
		t.Errorf("phase %s", connected.Status.Phase)
	}
	if list, err := guest.UserList(t.Context()); err != nil || len(list.Items) != 1 {
		t.Errorf("users: %+v, %v", list, err)
	}
}

// connectAgent starts the guest's agent, and returns the VMI whose status says so. heard gets each command.
func (n *node) connectAgent(m *model, heard func(command string)) *v1.VirtualMachineInstance {
	n.t.Helper()
	listener, err := net.Listen("unix", filepath.Join(m.private, layout.AgentSocket))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = listener.Close() })
	go serveAgent(listener, heard)
	m.qemu.OpenAgent(true)
	return n.api.await(n.t, "an agent", func(instance *v1.VirtualMachineInstance) bool {
		return condition(instance, v1.VirtualMachineInstanceAgentConnected) != nil && instance.Status.GuestOSInfo.ID == "debian"
	})
}

// serveAgent is a guest agent that knows three commands.
func serveAgent(listener net.Listener, heard func(command string)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			for {
				r, err := readAgentCommand(conn)
				if err != nil {
					return
				}
				heard(r.Execute)
				switch r.Execute {
				case "guest-sync-delimited":
					fmt.Fprintf(conn, "\xff{\"return\": %d}\n", r.Arguments.ID)
				case "guest-get-osinfo":
					fmt.Fprintln(conn, `{"return": {"id": "debian"}}`)
				case "guest-get-users":
					fmt.Fprintln(conn, `{"return": [{"user": "ann"}]}`)
				default:
					fmt.Fprintln(conn, `{"error": {"class": "CommandNotFound", "desc": "no such command"}}`)
				}
			}
		}()
	}
}

// agentCommand is a command to an agent.
type agentCommand struct {
	Execute   string
	Arguments struct{ ID int64 }
}

func readAgentCommand(conn net.Conn) (agentCommand, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := conn.Read(b); err != nil {
			return agentCommand{}, err
		}
		switch b[0] {
		case 0xff:
			line = nil
		case '\n':
			var c agentCommand
			err := json.Unmarshal(line, &c)
			return c, err
		default:
			line = append(line, b[0])
		}
	}
}

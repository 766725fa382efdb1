package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/logs/logstest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
	"drydock.dev/drydock/test/shipped"
)

// patience is how long a test waits for an event that comes soon: QEMU is emulated, and the machine may be busy.
const patience = 4 * time.Minute

// launcherFolder has launcherBinary, if it was built.
var launcherFolder string

// launcherBinary is virt-launcher, built once for all tests.
var launcherBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "driver-test-")
	if err != nil {
		return "", err
	}
	launcherFolder = dir
	path := filepath.Join(dir, "virt-launcher")
	build := exec.Command("go", "build", "-o", path, "drydock.dev/drydock/cmd/virt-launcher")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building virt-launcher: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == filepath.Base(layout.QEMUBinary) {
		os.Exit(standIn())
	}
	if len(os.Args) > 1 && os.Args[1] == network.TapCommand {
		os.Exit(confinedTap(os.Args[2:]))
	}
	withDevice()
	code := m.Run()
	if launcherFolder != "" {
		_ = os.RemoveAll(launcherFolder)
	}
	os.Exit(code)
}

// nodeDevice is the PCI address of the device that the kubelet has given to the launchers of these tests.
const nodeDevice = "0000:65:00.2"

// withDevice executes the test again with the device in its environment: a process's environment is read as it was at
// its start.
func withDevice() {
	const name = "PCIDEVICE_EXAMPLE_TEST_VF"
	if os.Getenv(name) != "" {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, append(os.Environ(), name+"="+nodeDevice))
	}
	fmt.Fprintln(os.Stderr, "starting the test with a device:", err)
	os.Exit(1)
}

// node is a node without a kubelet: a folder like the kubelet's, and an API server with one VMI.
type node struct {
	t *testing.T
	// dir is the kubelet's folder of pods.
	dir     string
	api     *api
	network Network
	disks   func(context.Context, disk.Pod, *v1.VirtualMachineInstance) error
	volumes volumes.Opener
	// selinux is nil on a node without SELinux.
	selinux *nodeselinux.Node
	// migration is nil if the node does not migrate.
	name      string
	migration *migration.Node
	// migrated receives the costs of migrations; it may be nil.
	migrated func(metrics.Migrated)
	// traced receives the traces of starts; nil for none. firstLine replaces the console.
	traced    func([]starttrace.Span)
	firstLine func(context.Context, *runningguest.Guest) (time.Time, bool)
	// kvm returns the result of the node's probe; nil for a node without KVM.
	kvm func() (usable, known bool)
	// stopped is the time of a clock that only the test moves; nil for the real clock.
	stopped atomic.Pointer[time.Time]
}

func (n *node) now() time.Time {
	if at := n.stopped.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// pass moves the node's clock and then stops it.
func (n *node) pass(d time.Duration) { n.stopped.Store(new(n.now().Add(d))) }

func newNode(t *testing.T, instance *v1.VirtualMachineInstance) *node {
	t.Helper()
	n := &node{t: t, name: "node1", dir: filepath.Join(t.TempDir(), "pods"), api: newAPI(instance), network: network.New(logTo(t)), disks: preparation.MakeDisks}
	n.volumes = podpath.Volumes{Kubelet: filepath.Dir(n.dir), Host: "/"}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func logTo(t *testing.T) logr.Logger {
	return logstest.About(t, logline.VMI)
}

// logOfServer checks the lines that are written after a migration is known.
func logOfServer(t *testing.T) logr.Logger {
	return logstest.Logger(func(l logstest.Line) {
		if reason, _ := l.Value("reason").(string); strings.Contains(reason, " of migration ") {
			if fault := logstest.Fault(l, logline.VMI); fault != "" {
				t.Error(fault)
			}
		}
		t.Log(l.String())
	})
}

// handler is virt-handler's core on the node, until it is stopped.
type handler struct {
	supervisor *Supervisor
	stop       func()
}

// startHandler starts a virt-handler that sees the VMI and the given pods.
func (n *node) startHandler(pods ...*pod) *handler {
	n.t.Helper()
	watcher, err := podpath.NewWatcher()
	if err != nil {
		n.t.Fatal(err)
	}
	s := NewSupervisor(&Env{
		Node: n.name, Pods: n.dir, Migration: n.migration, Migrated: n.migrated, Watcher: watcher, Network: n.network, Cluster: n.api,
		Settings: (&clusterconfig.Current{}).Get,
		// The tests' pods have no cgroups.
		Belongs: func(*podpath.Peer, types.UID) error { return nil },
		Disks:   n.disks,
		Volumes: n.volumes,
		SELinux: n.selinux, KVM: n.kvm, Traced: n.traced, FirstLine: n.firstLine,
		Now: n.now, Log: logTo(n.t),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := watcher.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	h := &handler{supervisor: s, stop: sync.OnceFunc(func() {
		n.api.unwatch(n.name)
		cancel()
		running.Wait()
	})}
	n.t.Cleanup(h.stop)
	for _, p := range pods {
		s.PodSeen(p.object)
	}
	n.api.watch(n.name, s)
	return h
}

// pod is a launcher pod with namespaces of its own, the kubelet's volumes, and a virt-launcher that runs as user 107
// without privileges.
type pod struct {
	t      *testing.T
	dir    string
	object *corev1.Pod
	cmd    *exec.Cmd
	// standIn means that the stand-in starts QEMU.
	standIn bool
	// links are the pod's interfaces beside eth0.
	links []string
}

func (n *node) newPod(instance *v1.VirtualMachineInstance) *pod {
	uid := "pod-of-" + string(instance.UID)
	p := &pod{t: n.t, dir: filepath.Join(n.dir, uid), object: &corev1.Pod{}}
	p.object.Name, p.object.Namespace, p.object.UID = layout.LauncherPrefix+instance.Name, instance.Namespace, types.UID(uid)
	p.object.Labels = map[string]string{v1.CreatedByLabel: string(instance.UID)}
	p.object.Spec.NodeName = "node1"
	return p
}

func (p *pod) volume(name string) string {
	return filepath.Join(p.dir, podpath.EmptyDir(name))
}

// containerScript replaces the container runtime: root runs it in new mount, network and PID namespaces. It makes a
// /dev of its own, so that changes to device nodes don't reach the machine's.
const containerScript = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/kubevirt /run/kubevirt-ephemeral-disks /run/bin /run/qemu
mount --bind "$TREE" /run/qemu
mount --bind "$PRIVATE" /run/kubevirt
mount --bind "$EPHEMERAL" /run/kubevirt-ephemeral-disks
if test -n "$STANDIN"; then
	mkdir /run/behind
	mount --bind "$TREE" /run/behind
	mount --bind "$STANDIN" "$QEMU"
fi
touch /run/bin/virt-launcher
mount --bind "$LAUNCHER" /run/bin/virt-launcher
mount -t tmpfs tmpfs /dev
mkdir -p /dev/net /dev/shm
mknod /dev/null c 1 3
mknod /dev/zero c 1 5
mknod /dev/random c 1 8
mknod /dev/urandom c 1 9
chmod 666 /dev/null /dev/zero /dev/random /dev/urandom
mknod -m 600 /dev/net/tun c 10 200
touch /dev/termination-log
chown 107:107 /dev/termination-log
ip link set lo up
ip link add eth0 type veth peer name node0
ip link set node0 up
ip link set eth0 up
ip addr add 10.244.9.5/24 dev eth0
ip route add default via 10.244.9.1
for link in $LINKS; do
	ip link add "$link" type veth peer name "n${link#pod}"
	ip link set "$link" up
	ip link set "n${link#pod}" up
done
exec setpriv --reuid 107 --regid 107 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs /run/bin/virt-launcher -qemu "$QEMU"
`

// podQEMU is the container's path of QEMU, in the images' tree.
const podQEMU = "/run/qemu/bin/qemu-system-x86_64"

// needRoot skips a test that plays the kubelet. model_test.go tests the driver's decisions without root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it plays the kubelet, which owns a pod's folders and namespaces")
	}
}

// start starts the container.
func (p *pod) start() {
	p.t.Helper()
	needRoot(p.t)
	launcher, err := launcherBinary()
	if err != nil {
		p.t.Fatal(err)
	}
	p.makeVolumes()
	p.cmd = exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", containerScript)
	standIn := ""
	if p.standIn {
		standIn, err = os.Executable()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.cmd.Env = append(os.Environ(), "LAUNCHER="+launcher, "TREE="+shipped.File(p.t, "/"), "QEMU="+podQEMU, "STANDIN="+standIn, "LINKS="+strings.Join(p.links, " "),
		"PRIVATE="+p.volume(layout.PrivateVolume), "EPHEMERAL="+p.volume(layout.EphemeralVolume))
	log := &lines{t: p.t}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		// When the first process of a PID namespace ends, all others end. They may have ended already.
		for _, pid := range children(p.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = p.cmd.Wait()
	})
}

// makeVolumes makes the folders that the kubelet makes.
func (p *pod) makeVolumes() {
	p.t.Helper()
	needRoot(p.t)
	for _, name := range []string{layout.PrivateVolume, layout.EphemeralVolume} {
		if err := os.MkdirAll(p.volume(name), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Chown(p.volume(name), layout.QEMUUser, layout.QEMUUser); err != nil {
			p.t.Fatalf("playing the kubelet: %v", err)
		}
	}
}

// children returns the children of a process.
func children(pid int) []int {
	// Each thread has a list of its own.
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, path := range lists {
		list, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// qemus returns the QEMU processes in the pod.
func (p *pod) qemus() []int {
	p.t.Helper()
	var pids []int
	for _, launcher := range children(p.cmd.Process.Pid) {
		for _, pid := range children(launcher) {
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(name), "qemu-system") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitSocket waits until virt-launcher's socket exists and the driver had time to connect.
func (n *node) awaitSocket(p *pod) {
	n.t.Helper()
	watcher, err := podpath.NewWatcher()
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	if err := watcher.Await(ctx, p.volume(layout.PrivateVolume), layout.LauncherSocket); err != nil {
		n.t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // the absence of an action has no event
	cancel()
	if err := <-ended; err != nil {
		n.t.Error(err)
	}
}

// lines writes a process's output to the test's log.
type lines struct {
	mu   sync.Mutex
	t    *testing.T
	rest string
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest += string(data)
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole {
			return len(data), nil
		}
		l.t.Log("pod:", line)
		l.rest = rest
	}
}

// api is an API server with one VMI. It applies JSON patches with their tests, and reports each change to the watchers.
type api struct {
	mu      sync.Mutex
	changed *sync.Cond
	vmi     *v1.VirtualMachineInstance
	// watchers has the virt-handlers by node.
	watchers map[string]*Supervisor
	away     bool
	// deserted means that the VMI does not exist, podGone that its pod does not.
	deserted, podGone bool
	patches           []string
	events            []string
	outdated          int
	// ignores is a text: patches that contain it are not answered before the test ends.
	ignores string
	ended   chan struct{}
	// hanging is what becomes of patches, and unanswered the number of those that have got no answer.
	hanging    hanging
	unanswered int
}

// hanging is the way of an API server with patches.
type hanging int

const (
	answers hanging = iota
	// hangs waits for the end of the caller's patience; hangsAfterwards applies the patch before.
	hangs
	hangsAfterwards
)

func newAPI(instance *v1.VirtualMachineInstance) *api {
	a := &api{vmi: instance.DeepCopy(), watchers: map[string]*Supervisor{}}
	a.changed = sync.NewCond(&a.mu)
	a.vmi.ResourceVersion = "1"
	return a
}

func (a *api) watch(node string, s *Supervisor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers[node] = s
	a.show(&v1.VirtualMachineInstance{}, a.vmi, node, s)
}

func (a *api) unwatch(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.watchers, node)
}

// show passes a change to a virt-handler as its watches would.
func (a *api) show(before, now *v1.VirtualMachineInstance, node string, s *Supervisor) {
	for watch, label := range map[Watch]string{Here: v1.NodeNameLabel, Coming: v1.MigrationTargetNodeNameLabel} {
		switch {
		case now.Labels[label] == node:
			s.VMISeen(watch, now.DeepCopy())
		case before.Labels[label] == node:
			s.VMIGone(watch, now.UID)
		}
	}
}

// update changes the VMI as another client would.
func (a *api) update(change func(*v1.VirtualMachineInstance)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := a.vmi.DeepCopy()
	change(changed)
	a.store(changed)
}

func (a *api) store(changed *v1.VirtualMachineInstance) {
	version, _ := strconv.Atoi(a.vmi.ResourceVersion)
	changed.ResourceVersion = strconv.Itoa(version + 1)
	before := a.vmi
	a.vmi = changed
	for node, s := range a.watchers {
		a.show(before, changed, node, s)
	}
	a.changed.Broadcast()
}

func (a *api) setAway(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// ignore leaves patches that contain a text unanswered, whatever their timeout.
func (a *api) ignore(t *testing.T, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ignores, a.ended = text, make(chan struct{})
	t.Cleanup(func() { close(a.ended) })
}

func (a *api) hang(how hanging) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hanging = how
}

// awaitUnanswered waits until a patch gets no answer.
func (a *api) awaitUnanswered(t *testing.T) {
	t.Helper()
	a.await(t, "a patch", func(*v1.VirtualMachineInstance) bool { return a.unanswered > 0 })
}

// receive returns what becomes of a patch.
func (a *api) receive() hanging {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hanging != answers {
		a.unanswered++
		a.changed.Broadcast()
	}
	return a.hanging
}

func (a *api) PatchVMI(ctx context.Context, instance *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error) {
	switch a.receive() {
	case hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case hangsAfterwards:
		if _, err := a.patch(instance, patch); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return a.patch(instance, patch)
	}
}

func (a *api) patch(instance *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error) {
	a.mu.Lock()
	if a.ignores != "" && strings.Contains(string(patch), a.ignores) {
		a.mu.Unlock()
		<-a.ended
		return nil, errors.New("connection refused")
	}
	defer a.mu.Unlock()
	if a.away {
		return nil, errors.New("connection refused")
	}
	before, err := json.Marshal(a.vmi)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	after, err := decoded.Apply(before)
	if err != nil {
		a.outdated++
		return nil, apierrors.NewInvalid(v1.VirtualMachineInstanceGroupVersionKind.GroupKind(), instance.Name, nil)
	}
	changed := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	a.patches = append(a.patches, string(patch))
	a.store(changed)
	return a.vmi.DeepCopy(), nil
}

func (a *api) VMI(context.Context, string, string) (*v1.VirtualMachineInstance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.away:
		return nil, errors.New("connection refused")
	case a.deserted:
		return nil, apierrors.NewNotFound(runningguest.Resource, a.vmi.Name)
	}
	return a.vmi.DeepCopy(), nil
}

func (a *api) Pod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.away:
		return nil, errors.New("connection refused")
	case a.podGone:
		return nil, nil
	}
	return &corev1.Pod{}, nil
}

// remove removes the VMI or its pod from the API server.
func (a *api) remove(vmi, pod bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deserted, a.podGone = a.deserted || vmi, a.podGone || pod
}

func (a *api) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if size, ok := claims[name]; ok {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("uid-of-"+name)
		claim.Spec.VolumeName = "volume-of-" + name
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		return claim, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), namespace+"/"+name)
}

func (a *api) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	claim := strings.TrimPrefix(name, "volume-of-")
	volume := &corev1.PersistentVolume{}
	volume.Name = name
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: a.vmi.Namespace, Name: claim, UID: types.UID("uid-of-" + claim)}
	return volume, nil
}

func (a *api) Event(_ *v1.VirtualMachineInstance, kind, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, kind+" "+reason+": "+message)
	a.changed.Broadcast()
}

// await waits until the VMI is as wanted, and returns it.
func (a *api) await(t *testing.T, what string, reached func(*v1.VirtualMachineInstance) bool) *v1.VirtualMachineInstance {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	late := false
	timer := time.AfterFunc(patience, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		late = true
		a.changed.Broadcast()
	})
	defer timer.Stop()
	for !reached(a.vmi) {
		if late {
			status, _ := json.Marshal(a.vmi.Status)
			t.Fatalf("waited for %s in vain; the status is %s", what, status)
		}
		a.changed.Wait()
	}
	return a.vmi.DeepCopy()
}

func (a *api) counts() (patches, outdated int, events []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.patches), a.outdated, append([]string(nil), a.events...)
}

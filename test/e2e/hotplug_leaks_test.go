//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/proc"
)

// A long run needs more cycles than every run can afford: see `make soak`.
var cycles = flag.Int("hotplug.cycles", 12, "how often volumes are plugged and unplugged, four at a time")

// atOnce is the number of volumes that are plugged and unplugged together, so that cycles overlap and the rest of a
// shared attachment pod is handed over when one volume goes.
const atOnce = 4

// TestPluggingLeaksNothing plugs and unplugs volumes many times. QEMU, virt-launcher, virt-handler and virt-controller
// must keep no descriptor, mount, goroutine or memory of it, and the last cycles must not be slower than the first. Not
// parallel: other tests would change the counts.
func TestPluggingLeaksNothing(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	var names []string
	for i := range atOnce {
		name := fmt.Sprintf("vol-%d", i)
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
		names = append(names, name)
	}
	g := bootVM(t, newVM(onNode1(newVMI(ns, "cycled")), v1.RunStrategyAlways))
	parts := partsOf(t, awaitRunning(t, ns, "cycled"))
	rounds := *cycles / atOnce
	fifth := max(rounds/5, 1)

	// One-time allocations (connections, caches, QEMU's arenas) happen here.
	for range fifth {
		g.plugAndUnplug(names)
	}
	awaitAttachmentPods(t, ns, "cycled", 0)
	before := costs(t, parts)
	t.Logf("after %d cycles to warm up:\n%s", fifth*atOnce, before)

	// The time that pods take shows the other load of the machine.
	var took, pods []time.Duration
	for round := range rounds {
		took = append(took, g.plugAndUnplug(names))
		pods = append(pods, startPod(t, ns, fmt.Sprintf("beside-%d", round)))
		if done := round + 1; done%fifth == 0 {
			t.Logf("after %d cycles more, %v for %d at once, a pod %v (median of the last %d):\n%s",
				done*atOnce, median(took[done-fifth:]), atOnce, median(pods[done-fifth:]), fifth, costs(t, parts))
		}
	}
	awaitAttachmentPods(t, ns, "cycled", 0)
	slower, load := lastToFirst(took), lastToFirst(pods)
	t.Logf("figure hotplug: %d cycles, %d at once take %v (median); in the last fifth %.2f times as long as in the first, a pod %.2f times",
		rounds*atOnce, atOnce, median(took), slower, load)
	// With few rounds, the first and the last fifth overlap, and their ratio is meaningless.
	if rounds >= 10 && slower > 2*max(load, 1) {
		t.Errorf("cycles have become slow: %v", took)
	}
	eventually(t, "no more than before", func(context.Context) error { return costs(t, parts).grownSince(before) })
	t.Logf("in the end:\n%s", costs(t, parts))
}

// lastToFirst compares the fastest of the last fifth, or of at least two, with that of the first, because load can only
// slow a round down.
func lastToFirst(d []time.Duration) float64 {
	n := max(len(d)/5, 2)
	return float64(slices.Min(d[len(d)-n:])) / float64(slices.Min(d[:n]))
}

// plugAndUnplug adds volumes, waits until they are Ready, removes them, and waits until the guest has none. It returns
// the time that this took.
func (g *guest) plugAndUnplug(names []string) time.Duration {
	g.t.Helper()
	began := time.Now()
	for _, name := range names {
		do(g.t, g.namespace, "addvolume", g.name, "--volume-name="+name)
	}
	awaitVMI(g.t, g.namespace, g.name, "all volumes Ready", func(vmi *v1.VirtualMachineInstance) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			s := volumeStatus(vmi, name)
			return s == nil || s.Phase != v1.VolumeReady
		})
	})
	for _, name := range names {
		do(g.t, g.namespace, "removevolume", g.name, "--volume-name="+name)
	}
	for _, name := range names {
		g.loses(name)
	}
	return time.Since(began)
}

// part is a process that takes part in plugging.
type part struct {
	name string
	pid  int
	// ram is the size of the guest's memory in KiB, which is subtracted.
	ram int
	// The pod's metrics count its goroutines.
	pod string
	// spread is the normal fluctuation of the process's memory, in KiB; loose, that of its open connections.
	spread, loose int
}

// Memory is the resident set. QEMU's varies with its allocator's arenas and, under emulation, with the guest's page
// tables; a Go program's with its garbage collector. Five hundred leaked disks, or a client's records of five hundred
// pods, would be well above that.
const (
	qemuSpread      = 12 << 10
	launcherSpread  = 4 << 10
	componentSpread = 24 << 10
	// perConnection is the number of goroutines of one connection.
	perConnection = 3
)

func partsOf(t *testing.T, vmi *v1.VirtualMachineInstance) []part {
	t.Helper()
	memory := int(vmi.Spec.Domain.Memory.Guest.Value() >> 10)
	pod := launcherPod(t, vmi)
	handler, controller := handlerPod(t, vmi.Status.NodeName), leader(t)
	return []part{
		{name: "QEMU", pid: processOf(t, pod, "qemu-system-x86_64"), ram: memory, spread: qemuSpread},
		{name: "virt-launcher", pid: processOf(t, pod, "virt-launcher"), spread: launcherSpread},
		{name: "virt-handler", pid: processOf(t, handler, "virt"), pod: handler.Name, spread: componentSpread, loose: 4},
		{name: "virt-controller", pid: processOf(t, controller, "virt"), pod: controller.Name, spread: componentSpread, loose: 4},
	}
}

// The leader holds the lease.
func leader(t *testing.T) *corev1.Pod {
	t.Helper()
	var lease coordinationv1.Lease
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "kubevirt", Name: "virt-controller"}, &lease); err != nil {
		t.Fatalf("looking who leads: %v", err)
	}
	var pod corev1.Pod
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "kubevirt", Name: *lease.Spec.HolderIdentity}, &pod); err != nil {
		t.Fatalf("reading the pod of the virt-controller that leads: %v", err)
	}
	return &pod
}

func handlerPod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-handler"}); err != nil {
		t.Fatalf("listing the pods of virt-handler: %v", err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node {
			return &pods.Items[i]
		}
	}
	t.Fatalf("no pod of virt-handler is on node %q", node)
	return nil
}

func processOf(t *testing.T, pod *corev1.Pod, program string) int {
	t.Helper()
	found := programIn(t, pod, program)
	if len(found) != 1 {
		t.Fatalf("%d processes of %s run in pod %s, want 1", len(found), program, pod.Name)
	}
	return found[0]
}

func programIn(t *testing.T, pod *corev1.Pod, program string) []int {
	t.Helper()
	all, err := proc.OfPod(string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, p := range all {
		if p.Name() == program && !slices.Contains(p.Args, "await-port") { // the startup probe
			found = append(found, p.PID)
		}
	}
	return found
}

type cost struct {
	part
	files, mounts, goroutines int
	// rss and pss are in KiB, without the guest's RAM.
	rss, pss int
}

type costTable []cost

func (c costTable) String() string {
	var b strings.Builder
	for _, p := range c {
		fmt.Fprintf(&b, "  %-16s %4d files %4d mounts %5d goroutines %8d KiB RSS %8d KiB PSS\n", p.name, p.files, p.mounts, p.goroutines, p.rss, p.pss)
	}
	return b.String()
}

func costs(t *testing.T, parts []part) costTable {
	t.Helper()
	var table costTable
	for _, p := range parts {
		memory, err := proc.MemoryOf(p.pid)
		if err != nil {
			t.Fatal(err)
		}
		if p.ram > 0 {
			ram, err := proc.GuestRAM(p.pid, p.ram)
			if err != nil {
				t.Fatal(err)
			}
			memory.RSS -= ram.RSS
			memory.PSS -= ram.PSS
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.pid))
		if err != nil {
			t.Fatal(err)
		}
		table = append(table, cost{
			part: p, rss: memory.RSS, pss: memory.PSS,
			files: openFiles(t, p.pid), mounts: strings.Count(string(mounts), "\n"), goroutines: goroutines(t, p.pod),
		})
	}
	return table
}

// goroutines reads the number from the metrics of a component's pod; without a pod it is 0.
func goroutines(t *testing.T, pod string) int {
	t.Helper()
	if pod == "" {
		return 0
	}
	var component corev1.Pod
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "kubevirt", Name: pod}, &component); err != nil {
		t.Fatalf("looking for %s: %v", pod, err)
	}
	out, err := readMetrics(t.Context(), &component)
	if err != nil {
		t.Fatalf("reading the metrics of %s: %v", pod, err)
	}
	count := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindStringSubmatch(out)
	if count == nil {
		t.Fatalf("the metrics of %s do not tell of goroutines:\n%s", pod, out)
	}
	n, err := strconv.Atoi(count[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (c costTable) grownSince(before costTable) error {
	for i, now := range c {
		then := before[i]
		switch {
		case now.files > then.files+now.loose, now.mounts > then.mounts, now.goroutines > then.goroutines+perConnection*now.loose:
			return fmt.Errorf("%s has more files, mounts or goroutines; now:\n%sbefore:\n%s", now.name, c, before)
		case now.rss > then.rss+now.spread, now.pss > then.pss+now.spread:
			return fmt.Errorf("%s has grown by more than %d KiB; now:\n%sbefore:\n%s", now.name, now.spread, c, before)
		}
	}
	return nil
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	n, err := process.FileDescriptorsLen()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

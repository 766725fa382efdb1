//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/layout"
)

// Budgets of one VM.
const (
	// launcherMemoryKiB is virt-launcher's own resident set.
	launcherMemoryKiB = 12 << 10
	// lifeWrites are the writes to the API server by Drydock's components from
	// a VMI's creation to its end.
	lifeWrites = 8
	// startOverPod is how much longer than a bare pod of the same image a VMI
	// may take to Running (the fastest of each). Where a pod itself takes longer than
	// that, as on a busy machine, it is once more the pod's time. The figure for a
	// calm machine is the benchmark's.
	startOverPod = 500 * time.Millisecond
)

// TestLauncherMemory prints and bounds what a VM costs beside its QEMU. The
// figure is the resident set: what the kernel charges while nobody else maps the
// same pages.
func TestLauncherMemory(t *testing.T) {
	ns := newNamespace(t)
	g := boot(t, newVMI(ns, "small"))
	vmi := awaitRunning(t, ns, g.name)
	pod := launcherPod(t, vmi)
	launchers, err := proc.OfPod(string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	launchers = slices.DeleteFunc(launchers, func(p proc.Process) bool { return p.Name() != "virt-launcher" })
	if len(launchers) != 1 {
		t.Fatalf("%d virt-launcher processes run in the VMI's pod, want 1", len(launchers))
	}
	memory, err := proc.MemoryOf(launchers[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	kib := memory.RSS
	t.Logf("virt-launcher's resident set: %d KiB (budget %d)", kib, launcherMemoryKiB)
	if kib > launcherMemoryKiB {
		t.Errorf("virt-launcher's resident set is %d KiB, the budget is %d", kib, launcherMemoryKiB)
	}
}

// TestWritesOfALife prints and bounds what one VMI's life costs the API server: the cheapest of some, because a machine
// that is busy has things told that come at once on one that is not.
func TestWritesOfALife(t *testing.T) {
	const lives = 4
	var writes []audit.Request
	for i := range lives {
		writes = writesOfALife(t)
		t.Logf("life %d took %d writes (budget %d):\n%s", i+1, len(writes), lifeWrites, strings.Join(audit.Sums(writes), "\n"))
		if len(writes) <= lifeWrites {
			return
		}
	}
	t.Errorf("each of %d VMIs' lives took more writes by Drydock's components than the budget of %d; the last one %d", lives, lifeWrites, len(writes))
}

// writesOfALife are the writes to the API server by Drydock's components from a VMI's creation to its end.
func writesOfALife(t *testing.T) []audit.Request {
	t.Helper()
	ns := newNamespace(t)
	began := time.Now()
	vmi := newVMI(ns, "counted")
	create(t, vmi)
	awaitRunning(t, ns, vmi.Name)
	login(t, ns, vmi.Name)
	deleteObject(t, vmi)
	awaitGone(t, vmi)

	var writes []audit.Request
	eventually(t, "the end of the life in the audit log", func(context.Context) error {
		requests, err := audit.Since(filepath.Join(os.Getenv("DRYDOCK_DIR"), "logs"), began)
		if err != nil {
			return err
		}
		writes = slices.DeleteFunc(requests, func(r audit.Request) bool { return r.Namespace != ns || r.Kind() != audit.Write })
		for _, w := range writes {
			if w.Verb == "delete" && w.Resource == "pods" {
				return nil
			}
		}
		return fmt.Errorf("the launcher pod's deletion is not in the audit log yet; it has:\n%s", strings.Join(audit.Sums(writes), "\n"))
	})
	return writes
}

// TestStartIsNearABarePod starts pods and VMIs by turns and compares the fastest of
// each: whatever else the machine does only makes a start slower. It goes on until the
// difference is within the budget, or no further round can be expected to bring it there.
func TestStartIsNearABarePod(t *testing.T) {
	ns := newNamespace(t)
	const rounds = 15
	var pods, vmis []time.Duration
	for i := range rounds {
		pods = append(pods, startPod(t, ns, fmt.Sprintf("bare-%d", i)))
		vmis = append(vmis, startVMI(t, ns, fmt.Sprintf("vmi-%d", i)))
		pod, vmi := slices.Min(pods), slices.Min(vmis)
		budget := max(startOverPod, pod)
		t.Logf("to Running, the fastest of %d: bare pod %v, VMI %v, difference %v (budget %v)", i+1, pod, vmi, vmi-pod, budget)
		if i >= 2 && vmi-pod <= budget {
			return
		}
	}
	t.Errorf("a VMI takes longer to Running than a bare pod by more than the budget; pods %v, VMIs %v", pods, vmis)
}

// startPod starts a pod of the launcher's image that does nothing.
func startPod(t *testing.T, namespace, name string) time.Duration {
	pod := toolsPod(namespace, name)
	pod.Spec.Containers[0].Image = layout.DevelLauncherImage
	pod.Spec.Containers[0].Command = []string{layout.LauncherBinary, "pause"}
	begin := time.Now()
	create(t, pod)
	awaitPodRunning(t, namespace, name)
	took := time.Since(begin)
	deleteObject(t, pod)
	awaitGone(t, pod)
	return took
}

func startVMI(t *testing.T, namespace, name string) time.Duration {
	vmi := newVMI(namespace, name)
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(0))
	begin := time.Now()
	create(t, vmi)
	awaitRunning(t, namespace, name)
	took := time.Since(begin)
	deleteObject(t, vmi)
	awaitGone(t, vmi)
	return took
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}

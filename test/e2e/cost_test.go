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
)

// TestWhatALifeCosts prints and bounds what one VMI costs on a real node and a real API server: the memory of its
// virt-launcher, and the writes by all of Drydock's components; the cheapest of some lives, because a machine
// that is busy has things told that come at once on one that is not. Not parallel: it would be busy.
func TestWhatALifeCosts(t *testing.T) {
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
	launcherIsSmall(t, login(t, ns, vmi.Name))
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

// launcherIsSmall prints and bounds what a VM costs beside its QEMU. The
// figure is the resident set: what the kernel charges while nobody else maps the
// same pages.
func launcherIsSmall(t *testing.T, g *guest) {
	t.Helper()
	vmi := awaitRunning(t, g.namespace, g.name)
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

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}

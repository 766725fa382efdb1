//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Budgets of one VM.
const (
	// launcherMemoryKiB bounds virt-launcher's own resident set.
	launcherMemoryKiB = 12 << 10
	// lifeWrites bounds the writes to the API server by Drydock's components from a VMI's creation to its end, when
	// nothing is late (decision 140).
	lifeWrites = 8
)

// TestWhatALifeCosts prints and bounds the cost of one VMI: the memory of its virt-launcher, and the writes by
// Drydock's components. Only on a real node can facts arrive late and take an extra write. Not parallel: other
// tests would add load.
func TestWhatALifeCosts(t *testing.T) {
	ns := newNamespace(t)
	began := time.Now()
	vmi := newVMI(ns, "counted")
	versions := versionsOf(t, ns)
	create(t, vmi)
	awaitRunning(t, ns, vmi.Name)
	launcherIsSmall(t, login(t, ns, vmi.Name))
	deleteObject(t, vmi)
	awaitGone(t, vmi)

	writes, refused := writesOfALife(t, ns, began)
	late := toldLate(versions())
	t.Logf("the life took %d writes (budget %d), of which for what came late (%s):\n%s", len(writes), lifeWrites, strings.Join(late, ", "), strings.Join(audit.Sums(writes), "\n"))
	if len(writes) > lifeWrites+len(late) {
		t.Errorf("the VMI's life took %d writes by Drydock's components, the budget is %d, and %d for what came late", len(writes), lifeWrites, len(late))
	}
	// A refused write lost a race with a successful one.
	if len(refused) > len(writes) {
		t.Errorf("%d writes were refused, more than were taken:\n%s", len(refused), strings.Join(audit.Sums(refused), "\n"))
	}
}

// versionsOf watches the next VMI of a namespace. The returned function waits until that VMI is gone and returns all of
// its versions.
func versionsOf(t *testing.T, ns string) func() []*v1.VirtualMachineInstance {
	t.Helper()
	w, err := cluster.client.Watch(t.Context(), &v1.VirtualMachineInstanceList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	var all []*v1.VirtualMachineInstance
	gone := make(chan bool, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Deleted {
				gone <- true
				return
			}
			if vmi, ok := event.Object.(*v1.VirtualMachineInstance); ok {
				all = append(all, vmi)
			}
		}
		gone <- false
	}()
	return func() []*v1.VirtualMachineInstance {
		t.Helper()
		select {
		case whole := <-gone:
			if !whole {
				t.Fatal("the watch has ended before the VMI did: its versions are not known")
			}
		case <-time.After(patience):
			t.Fatal("the watch does not tell of the VMI's end")
		}
		return all
	}
}

// toldLate names the facts that the VMI's versions report separately although most lives report them with earlier ones.
func toldLate(versions []*v1.VirtualMachineInstance) (late []string) {
	for i, now := range versions[1:] {
		was := versions[i]
		agentWas, agentIs := condition.IsTrue(was.Status.Conditions, v1.VirtualMachineInstanceAgentConnected), condition.IsTrue(now.Status.Conditions, v1.VirtualMachineInstanceAgentConnected)
		switch {
		case now.Status.Phase == v1.Scheduling && (was.Status.Phase != v1.Scheduling || !reflect.DeepEqual(was.Status.Conditions, now.Status.Conditions)):
			late = append(late, "the launcher pod's node")
		case agentWas && agentIs && !reflect.DeepEqual(was.Status.Interfaces, now.Status.Interfaces):
			late = append(late, "the guest's addresses")
		case agentWas && !agentIs && !now.IsFinal():
			late = append(late, "the guest's end after its agent's")
		}
	}
	return late
}

// writesOfALife returns the writes by Drydock's components in a namespace until a launcher pod is deleted.
func writesOfALife(t *testing.T, ns string, began time.Time) (taken, refused []audit.Request) {
	t.Helper()
	eventually(t, "the end of the life in the audit log", func(context.Context) error {
		requests, err := audit.Since(filepath.Join(os.Getenv("DRYDOCK_DIR"), "logs"), began)
		if err != nil {
			return err
		}
		taken, refused = nil, nil
		ended := false
		for _, r := range requests {
			switch {
			case r.Namespace != ns || r.Kind() != audit.Write:
			case r.Code >= 400:
				refused = append(refused, r)
			default:
				taken = append(taken, r)
				ended = ended || r.Verb == "delete" && r.Resource == "pods"
			}
		}
		if !ended {
			return fmt.Errorf("the launcher pod's deletion is not in the audit log yet; it has:\n%s", strings.Join(audit.Sums(taken), "\n"))
		}
		return nil
	})
	return taken, refused
}

// launcherIsSmall prints and bounds the memory of a VM's pod beside its QEMU. The figure is the resident set: the
// kernel charges this much while nobody else maps the same pages.
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

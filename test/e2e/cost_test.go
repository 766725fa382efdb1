//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Budgets of one VM.
const (
	// launcherMemoryKiB is virt-launcher's own resident set.
	launcherMemoryKiB = 12 << 10
	// lifeWrites are the writes to the API server by Drydock's components from
	// a VMI's creation to its end.
	lifeWrites = 12
	// startOverPod is how much longer than a bare pod of the same image a VMI
	// may take to Running (median).
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
	launchers := processes(t, func(pid int, args []string) bool {
		return filepath.Base(args[0]) == "virt-launcher" && ofPod(pid, pod)
	})
	if len(launchers) != 1 {
		t.Fatalf("%d virt-launcher processes run in the VMI's pod, want 1", len(launchers))
	}
	kib := residentKiB(t, launchers[0])
	t.Logf("virt-launcher's resident set: %d KiB (budget %d)", kib, launcherMemoryKiB)
	if kib > launcherMemoryKiB {
		t.Errorf("virt-launcher's resident set is %d KiB, the budget is %d", kib, launcherMemoryKiB)
	}
}

// TestWritesOfALife prints and bounds what one VMI's life costs the API server.
func TestWritesOfALife(t *testing.T) {
	ns := newNamespace(t)
	vmi := newVMI(ns, "counted")
	create(t, vmi)
	awaitRunning(t, ns, vmi.Name)
	login(t, ns, vmi.Name)
	deleteObject(t, vmi)
	awaitGone(t, vmi)

	var writes []string
	eventually(t, "the end of the life in the audit log", func(context.Context) error {
		writes = writesBy(t, ns)
		for _, w := range writes {
			if strings.Contains(w, "delete pods/") {
				return nil
			}
		}
		return fmt.Errorf("the launcher pod's deletion is not in the audit log yet; it has:\n%s", strings.Join(writes, "\n"))
	})
	t.Logf("%d writes (budget %d):\n%s", len(writes), lifeWrites, strings.Join(writes, "\n"))
	if len(writes) > lifeWrites {
		t.Errorf("one VMI's life took %d writes by Drydock's components, the budget is %d", len(writes), lifeWrites)
	}
}

// TestStartIsNearABarePod starts pods and VMIs by turns in one run, since
// machines are noisy, and compares the medians.
func TestStartIsNearABarePod(t *testing.T) {
	ns := newNamespace(t)
	const rounds = 7
	var pods, vmis []time.Duration
	for i := range rounds {
		pods = append(pods, startPod(t, ns, fmt.Sprintf("bare-%d", i)))
		vmis = append(vmis, startVMI(t, ns, fmt.Sprintf("vmi-%d", i)))
	}
	pod, vmi := median(pods), median(vmis)
	t.Logf("to Running, median of %d: bare pod %v, VMI %v, difference %v (budget %v)", rounds, pod, vmi, vmi-pod, startOverPod)
	if vmi-pod > startOverPod {
		t.Errorf("a VMI takes %v longer than a bare pod to Running, the budget is %v; pods %v, VMIs %v", vmi-pod, startOverPod, pods, vmis)
	}
}

// startPod starts a pod of the launcher's image that does nothing.
func startPod(t *testing.T, namespace, name string) time.Duration {
	pod := toolsPod(namespace, name)
	pod.Spec.Containers[0].Image = "drydock.dev/virt-launcher:devel"
	pod.Spec.Containers[0].Command = []string{"/usr/bin/virt-launcher", "pause"}
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

// auditEvent is what is read of an entry of the API server's audit log.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// writesBy lists the writes of Drydock's service accounts in a namespace.
func writesBy(t *testing.T, namespace string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(os.Getenv("DRYDOCK_DIR"), "logs", "audit.log"))
	if err != nil {
		t.Fatalf("opening the audit log: %v", err)
	}
	defer file.Close()
	var writes []string
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var e auditEvent
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			continue // the last line may be half written
		}
		ours := strings.HasPrefix(e.User.Username, "system:serviceaccount:kubevirt:")
		reads := e.Verb == "get" || e.Verb == "list" || e.Verb == "watch"
		if e.Stage == "ResponseComplete" && ours && !reads && e.ObjectRef.Namespace == namespace {
			writes = append(writes, fmt.Sprintf("%s: %s %s/%s %s", strings.TrimPrefix(e.User.Username, "system:serviceaccount:kubevirt:"),
				e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name))
		}
	}
	return writes
}

// ofPod tells whether a process runs in a pod, by its cgroup.
func ofPod(pid int, pod *corev1.Pod) bool {
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	uid := string(pod.UID)
	return err == nil && (strings.Contains(string(cgroup), uid) || strings.Contains(string(cgroup), strings.ReplaceAll(uid, "-", "_")))
}

// residentKiB is a process's VmRSS.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				t.Fatalf("reading %q: %v", line, err)
			}
		}
	}
	return kib
}

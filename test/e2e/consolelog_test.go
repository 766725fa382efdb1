//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/layout"
)

func readConsoleLog(ctx context.Context, ns, pod string, more ...string) (string, error) {
	return kubectl(ctx, append([]string{"-n", ns, "logs", pod, "-c", layout.ConsoleLogContainer}, more...)...)
}

func awaitInConsoleLog(t *testing.T, ns, pod, want string) string {
	t.Helper()
	var log string
	eventually(t, fmt.Sprintf("%q in the log of %s", want, pod), func(ctx context.Context) (err error) {
		if log, err = readConsoleLog(ctx, ns, pod); err == nil && !strings.Contains(log, want) {
			err = fmt.Errorf("the log ends with %q", log[max(0, len(log)-200):])
		}
		return err
	})
	return log
}

// TestASerialConsoleIsTheLogOfItsContainer needs real kubelets and API servers: that the guest's lines arrive by
// `kubectl logs`, for whom, that they go on when the container is restarted and in the pod that the guest migrates to, and
// that the last ones arrive.
func TestASerialConsoleIsTheLogOfItsContainer(t *testing.T) {
	t.Parallel()
	ns, other := newNamespace(t), newNamespace(t)
	vm := newMigratableVM(t, ns, "logged")
	vm.Spec.Template.Spec.Domain.Devices.LogSerialConsole = new(true)
	g := bootVM(t, vm)
	vmi := awaitRunning(t, ns, "logged")
	pod := launcherPod(t, vmi).Name
	awaitInConsoleLog(t, ns, pod, "drydock guest ready")
	g.run("echo said-$((40+2))")
	log := awaitInConsoleLog(t, ns, pod, "said-42")
	if i := strings.IndexAny(log, "\x1b\r\x00"); i >= 0 {
		t.Errorf("the log can act on a terminal: %q", log[max(0, i-20):min(len(log), i+20)])
	}

	if out, err := readConsoleLog(t.Context(), ns, pod, "--as=system:serviceaccount:"+other+":default"); err == nil || !strings.Contains(out+err.Error(), "forbidden") {
		t.Errorf("another tenant's pod reads the log: %q, %v", out, err)
	}

	began := time.Now()
	g.run("yes flood | head -c 4000000 >/dev/ttyS0; echo flooded-$((40+3))")
	g.run("sleep 3; echo after-$((40+4))")
	log = awaitInConsoleLog(t, ns, pod, "after-44")
	// Lines are counted with the kubelet's addition to each.
	const burst, rate = 256 << 10, 32 << 10
	if most := 2*burst + int(time.Since(began).Seconds()+1)*rate; len(log) > most {
		t.Errorf("%d bytes of a flood are logged, more than %d", len(log), most)
	}
	if !strings.Contains(log, "bytes of the console are missing here") {
		t.Error("the log does not say that something is missing")
	}

	theReaderCostsLittle(t, launcherPod(t, vmi))
	theLogOutlivesItsReader(t, g, vmi)

	moved := migrated(t, ns, "logged")
	g = login(t, ns, "logged")
	g.run("echo moved-$((40+5))")
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	awaitInConsoleLog(t, ns, launcherPod(t, moved).Name, "moved-45")

	pod = launcherPod(t, moved).Name
	follow, err := followConsoleLog(t, ns, pod)
	if err != nil {
		t.Fatal(err)
	}
	g.tell("echo last-$((40+7)); poweroff -f")
	if log := follow(); !strings.Contains(log, "last-47") {
		t.Errorf("the log of a guest that has powered off ends with %q", log[max(0, len(log)-300):])
	}
}

// followConsoleLog returns a function that waits for the log's end.
func followConsoleLog(t *testing.T, ns, pod string) (func() string, error) {
	t.Helper()
	var log strings.Builder
	follow := exec.CommandContext(t.Context(), binary("drydock"), "kubectl", "-n", ns, "logs", "-f", pod, "-c", layout.ConsoleLogContainer)
	follow.Stdout = &log
	return func() string { _ = follow.Wait(); return log.String() }, follow.Start()
}

// theReaderCostsLittle measures all processes of the log's container, which waits for the guest.
func theReaderCostsLittle(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	readers := programIn(t, pod, "cat")
	if len(readers) != 1 {
		t.Fatalf("the processes of cat are %v", readers)
	}
	group := func(pid int) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	all, err := proc.OfPod(string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, p := range all {
		if group(p.PID) != group(readers[0]) {
			continue
		}
		memory, err := proc.MemoryOf(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		sum += memory.PSS
	}
	if t.Logf("figure console log: the idle container has %d KiB", sum); sum == 0 || sum > 1024 {
		t.Errorf("the idle container has %d KiB", sum)
	}
}

// theLogOutlivesItsReader kills the container's process while the guest writes: the kubelet starts the container again,
// the pod becomes Ready, and the log goes on. The guest's own container stays.
func theLogOutlivesItsReader(t *testing.T, g *guest, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	pod := launcherPod(t, vmi)
	g.run("(i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo count-$i-of-400 >/dev/ttyS0; sleep 0.1; done; echo counted-$((40+6)) >/dev/ttyS0) >/dev/null 2>&1 &")
	awaitInConsoleLog(t, pod.Namespace, pod.Name, "count-3-of-400")
	kill := killing(t, pod, "cat")
	if kill == nil {
		t.Fatal("no cat runs in the launcher pod")
	}
	kill()
	await(t, pod, &corev1.PodList{}, "the container's restart, and Ready again", func(pod *corev1.Pod) bool {
		reader := &pod.Status.InitContainerStatuses[0]
		return reader.RestartCount > 0 && reader.State.Running != nil && podReady(pod)
	})
	log := awaitInConsoleLog(t, pod.Namespace, pod.Name, "counted-46")
	before, err := readConsoleLog(t.Context(), pod.Namespace, pod.Name, "--previous")
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for i := range 400 {
		if line := fmt.Sprintf("count-%d-of-400", i+1); !strings.Contains(before+log, line) {
			missing++
		}
	}
	// cat had read some, and not written.
	if missing > 2 {
		t.Errorf("%d of 400 lines are in neither log", missing)
	}
	if now := launcherPod(t, vmi); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest's pod is %s, its container was restarted %d times", now.Name, now.Status.ContainerStatuses[0].RestartCount)
	}
}

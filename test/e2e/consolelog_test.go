//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
// `kubectl logs`, for whom, and that they go on in the pod that the guest migrates to.
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

	moved := migrated(t, ns, "logged")
	g = login(t, ns, "logged")
	g.run("echo moved-$((40+5))")
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	awaitInConsoleLog(t, ns, launcherPod(t, moved).Name, "moved-45")
}

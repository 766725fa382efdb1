package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holdLimitMi is the most memory that one holder may keep: there are up to a
// handful beside every guest.
const holdLimitMi = 6

func TestHoldWaitsForItsEndAndIsSmall(t *testing.T) {
	cmd := exec.Command(buildLauncher(t), "hold")
	said := &lockedBuffer{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	waitFor(t, "hold", func() bool { return strings.Contains(said.String(), "holding until told to end") })

	if kib := residentKiB(t, cmd.Process.Pid); kib > holdLimitMi<<10 {
		t.Errorf("a holder keeps %d KiB, more than %d MiB", kib, holdLimitMi)
	} else {
		t.Logf("a holder keeps %d KiB", kib)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("hold ends with %v", err)
		}
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Error("hold does not end")
	}
}

// buildLauncher gives the program as it is shipped: the test binary, which
// links a good deal more, would say nothing about its memory.
func buildLauncher(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "virt-launcher")
	out, err := exec.Command("go", "build", "-o", program, "../../cmd/virt-launcher").CombinedOutput()
	if err != nil {
		t.Fatalf("building virt-launcher: %v\n%s", err, out)
	}
	return program
}

func residentKiB(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatalf("no VmRSS in %s", text)
	return 0
}

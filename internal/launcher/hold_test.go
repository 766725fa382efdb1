package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/internal/contracts/layout"
)

// holdLimitMi bounds the memory of one holder: there are up to a handful beside every guest.
const holdLimitMi = 6

func TestHoldWaitsForItsEndAndIsSmall(t *testing.T) {
	cmd := exec.Command(buildLauncher(t), "hold")
	cmd.Env = append(os.Environ(), layout.SmallHeap)
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

// The test binary links much more, so its memory says nothing.
func buildLauncher(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "virt-launcher")
	out, err := exec.Command("go", "build", "-o", program, "../../cmd/virt-launcher").CombinedOutput()
	if err != nil {
		t.Fatalf("building virt-launcher: %v\n%s", err, out)
	}
	return program
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	status, err := process.NewStatus()
	if err != nil || status.VmRSS == 0 {
		t.Fatalf("the kernel does not say how large process %d is: %v", pid, err)
	}
	return int(status.VmRSS >> 10)
}

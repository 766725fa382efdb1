package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func (r *running) startWithTPM() (c *client, qemu, swtpm int) {
	r.t.Helper()
	c, _ = r.connect()
	reply := c.ask(launch.Request{Start: &launch.Start{GracePeriodSeconds: 0, TPM: &launch.TPM{State: r.tpmState()}, Args: r.qemuArgs(
		"-chardev", "socket,id=char-tpm0,path="+filepath.Join(r.dir, layout.TPMSocket),
		"-tpmdev", "emulator,id=tpm0,chardev=char-tpm0", "-device", "tpm-crb,tpmdev=tpm0")}})
	if reply.Error != "" || reply.State == nil || reply.State.Phase != launch.PhaseRunning {
		r.t.Fatalf("starting QEMU: %+v", reply)
	}
	return c, reply.State.QEMUPID, r.child("swtpm")
}

// tpmState is the folder of the TPM's state, which does not exist before the start.
func (r *running) tpmState() string { return filepath.Join(r.dir, "below", "tpm") }

// child returns the process ID of the launcher's child of that name, or 0.
func (r *running) child(name string) int {
	r.t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == r.cmd.Process.Pid && stat.Comm == name && stat.State != "Z" {
			return p.PID
		}
	}
	return 0
}

func TestATPMEndsWithItsQEMU(t *testing.T) {
	r := newLauncher(t)
	c, _, swtpm := r.startWithTPM()
	if swtpm == 0 {
		t.Fatal("there is no swtpm")
	}
	if reply := c.ask(launch.Request{Stop: &launch.Stop{}}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	exit := c.exited()
	if exit != (launch.Exit{Reason: launch.ReasonHostShutdown}) {
		t.Errorf("exit %+v", exit)
	}
	if alive(swtpm) {
		t.Error("virt-handler was told of the end before swtpm had stored its state")
	}
	r.finish(0, exit)
	// Only the guest may have its keys.
	for path, mode := range map[string]os.FileMode{r.tpmState(): 0o700, filepath.Join(r.tpmState(), "tpm2-00.permall"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want the mode %o", path, info, err, mode)
		}
	}
}

func TestAKilledLauncherTakesTheTPMWithIt(t *testing.T) {
	r := newLauncher(t)
	_, qemu, swtpm := r.startWithTPM()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of QEMU and swtpm", func() bool { return !alive(qemu) && !alive(swtpm) })
}

func TestAGuestGoesOnWithoutItsTPMUntilItIsReset(t *testing.T) {
	r := newLauncher(t)
	c, qemu, swtpm := r.startWithTPM()
	if err := syscall.Kill(swtpm, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the word of it in the log", func() bool { return strings.Contains(r.log.String(), "(swtpm) was ended by signal 9") })
	monitor := r.monitor()
	var status struct{ Running bool }
	if err := monitor.Execute(t.Context(), "query-status", nil, &status); err != nil || !status.Running || !alive(qemu) {
		t.Fatalf("the guest runs: %v, %v", status.Running, err)
	}
	// QEMU exits when it can't reset the TPM, perhaps before its answer arrives.
	_ = monitor.Execute(t.Context(), "system_reset", nil, nil)
	exit := c.exited()
	if exit.Reason != launch.ReasonCrashed || !strings.HasPrefix(exit.Message, "the guest's TPM (swtpm) was ended by signal 9 (killed); QEMU: ") {
		t.Errorf("exit %+v", exit)
	}
	r.finish(1, exit)
}

func TestATPMThatCantStartFailsTheStart(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	file := filepath.Join(r.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(), TPM: &launch.TPM{State: file}}})
	if want := "making the folder of the TPM's state: mkdir " + file + ": not a directory"; reply.Error != want {
		t.Errorf("the answer is %q, want %q", reply.Error, want)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonStartFailed || exit.Code != -1 {
		t.Errorf("exit %+v", exit)
	}
	r.finish(1, exit)
}

func TestWhatEarlierTPMsHaveLeftIsRemoved(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"tpm", "tpm-now", "tpm-next", "tpm-failed", "other"} {
		if err := os.MkdirAll(filepath.Join(folder, name, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "tpm.img"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", filepath.Join(folder, "tpm-link")); err != nil {
		t.Fatal(err)
	}
	has := func() string {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	before := has()
	if err := removeOldTPMs(&launch.TPM{State: filepath.Join(folder, "tpm-now")}); err != nil || has() != before {
		t.Errorf("beside a TPM that is not kept there is %s, %v; there was %s", has(), err, before)
	}
	if err := removeOldTPMs(&launch.TPM{State: filepath.Join(folder, "tpm-next"), Current: "tpm-now"}); err != nil {
		t.Fatal(err)
	}
	if got, want := has(), "other tpm-link tpm-next tpm-now tpm.img"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
	if _, err := os.Stat(filepath.Join(folder, "other/below")); err != nil {
		t.Errorf("what a link leads to is gone: %v", err)
	}
}

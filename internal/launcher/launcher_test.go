package launcher

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
)

func TestQuitOverTheMonitorIsAShutdownFromOutside(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	// QEMU may end before its answer to quit arrives.
	_ = r.monitor().Execute(context.Background(), "quit", nil, nil)
	exit := c.exited()
	if exit != (launch.Exit{Reason: launch.ReasonHostShutdown}) {
		t.Errorf("exit %+v", exit)
	}
	r.finish(0, exit)
}

func TestAGuestThatIgnoresThePowerButtonIsKilledAfterItsGracePeriod(t *testing.T) {
	r := newLauncher(t)
	// The BIOS ignores the button.
	c, _ := r.start(1)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonKilled || exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	r.finish(0, exit)
}

func TestStopWithoutGraceEndsAtOnce(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(3600)
	if reply := c.ask(launch.Request{Stop: &launch.Stop{GracePeriodSeconds: 600}}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	if reply := c.ask(launch.Request{Stop: &launch.Stop{GracePeriodSeconds: 0}}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	exit := c.exited()
	if exit != (launch.Exit{Reason: launch.ReasonHostShutdown}) {
		t.Errorf("exit %+v", exit)
	}
	r.finish(0, exit)
}

func TestAStoppedQEMUProcessIsEndedByForce(t *testing.T) {
	r := newLauncher(t)
	c, pid := r.start(0)
	// A hanging QEMU does not even read quit.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonHostShutdown || exit.Code != -1 {
		t.Errorf("exit %+v", exit)
	}
	r.finish(0, exit)
}

func TestSIGTERMBeforeQEMUIsStartedEndsTheLauncher(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonHostShutdown {
		t.Errorf("exit %+v", exit)
	}
	r.finish(0, exit)
}

func TestAKilledQEMUHasCrashed(t *testing.T) {
	r := newLauncher(t)
	c, pid := r.start(30)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonCrashed || exit.Code != -1 || !strings.Contains(exit.Message, "signal 9") {
		t.Errorf("exit %+v", exit)
	}
	r.finish(1, exit)
}

func TestAKilledLauncherTakesQEMUWithIt(t *testing.T) {
	r := newLauncher(t)
	_, pid := r.start(30)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "QEMU's end", func() bool { return !alive(pid) })
}

func TestAMachineThatQEMURefusesFailsWithQEMUsWords(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs("-device", "no-such-device")}})
	if !strings.Contains(reply.Error, "no-such-device") {
		t.Errorf("the answer is %+v", reply)
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonStartFailed || exit.Code != 1 || !strings.Contains(exit.Message, "no-such-device") {
		t.Errorf("exit %+v", exit)
	}
	r.finish(1, exit)
}

func TestANewConnectionReplacesTheOldOneAndKnowsEverything(t *testing.T) {
	r := newLauncher(t)
	old, pid := r.start(30)
	c, state := r.connect()
	if state.Phase != launch.PhaseRunning || state.QEMUPID != pid {
		t.Errorf("the state is %+v", state)
	}
	if old.scanner.Scan() {
		t.Errorf("the old connection was told %s", old.scanner.Text())
	}
	// A second start must do nothing.
	reply := c.ask(launch.Request{Start: &launch.Start{Args: []string{"-no-such-option"}}})
	if reply.Error != "" || reply.State.QEMUPID != pid {
		t.Errorf("the second start answers %+v", reply)
	}
	_ = r.monitor().Execute(context.Background(), "quit", nil, nil)
	r.finish(0, c.exited())
}

func TestAStartFromTwoConnectionsStartsOneQEMU(t *testing.T) {
	r := newLauncher(t)
	first, _ := r.connect()
	request := []byte(`{"id":1,"start":{"args":["` + strings.Join(r.qemuArgs(), `","`) + `"],"gracePeriodSeconds":1}}` + "\n")
	if _, err := first.conn.Write(request); err != nil {
		t.Fatal(err)
	}
	second, _ := r.connect()
	reply := second.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs()}})
	if reply.Error != "" || reply.State.Phase != launch.PhaseRunning || reply.State.QEMUPID == 0 {
		t.Errorf("the second start answers %+v", reply)
	}
	out, err := exec.Command("pgrep", "-f", filepath.Join(r.dir, "qmp.sock")).Output()
	if err != nil || len(strings.Fields(string(out))) != 1 {
		t.Errorf("the machine's processes are %q, %v", out, err)
	}
}

func TestARequestForNothingIsRefused(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	reply := c.ask(launch.Request{})
	if !strings.Contains(reply.Error, "asks for nothing") {
		t.Errorf("an empty request answers %+v", reply)
	}
}

// maxResident bounds the memory of a launcher beside QEMU.
const maxResident = 12 << 20

func TestTheLauncherIsSmall(t *testing.T) {
	program := filepath.Join(t.TempDir(), "virt-launcher")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "drydock.dev/drydock/cmd/virt-launcher")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building virt-launcher: %v\n%s", err, out)
	}
	r := launchProcess(t, program)
	r.start(30)
	kib := residentKiB(t, r.cmd.Process.Pid)
	t.Logf("virt-launcher's resident set with a running QEMU: %d KiB", kib)
	if kib<<10 > maxResident {
		t.Errorf("that is more than %d KiB", maxResident>>10)
	}
}

package launcher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/launcher/bootprobe"
	"drydock.dev/drydock/test/shipped"
)

func verb(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is the answer
	return cmd.ProcessState.ExitCode(), out.String(), complaint.String()
}

// Debian's agent stands for a guest's.
func runningAgent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-ga"), "--method=unix-listen", "--path="+socket, "--statedir="+dir,
		"--pidfile="+filepath.Join(dir, "pid"), "--block-rpcs=guest-shutdown,guest-fsfreeze-freeze,guest-suspend-disk,guest-suspend-ram")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	return socket
}

func TestProbesAskTheGuest(t *testing.T) {
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"a ping":                     {[]string{"guest-agent-ping", "--timeout=4m"}, 0, "", ""},
		"a program that succeeds":    {[]string{"exec", "--timeout=240", "--", "/bin/echo", "well", "--all"}, 0, "well --all\n", ""},
		"a program that fails":       {[]string{"exec", "--timeout=4m", "--", "/bin/sh", "-c", "echo ill >&2; exit 4"}, 4, "", "ill\n"},
		"a program that is not":      {[]string{"exec", "--timeout=4m", "--", "/no/such/program"}, 1, "", "virt-launcher: guest agent: guest-exec: "},
		"a program that takes long":  {[]string{"exec", "--timeout=2s", "--", "/bin/sleep", "10"}, 1, "", "deadline exceeded"},
		"a program that is killed":   {[]string{"exec", "--timeout=4m", "--", "/bin/sh", "-c", "kill -9 $$"}, 1, "", "a signal ended /bin/sh"},
		"nothing to run":             {[]string{"exec", "--timeout=1s", "--"}, 1, "", "probe exec needs a command"},
		"an unknown probe":           {[]string{"dance"}, 1, "", `"dance" is none of guest-agent-ping, exec, guest-began`},
		"a deadline that is no time": {[]string{"exec", "--timeout=soon"}, 1, "", `"soon" is not a duration`},
	} {
		t.Run(name, func(t *testing.T) {
			// Each case has an agent of its own: qemu-ga may not survive a conversation that is cut short.
			args := append([]string{"probe", c.args[0], "--socket=" + runningAgent(t)}, c.args[1:]...)
			var code int
			var stdout, stderr string
			// qemu-ga makes its socket anew after each conversation.
			waitFor(t, "qemu-ga", func() bool {
				code, stdout, stderr = verb(t, args...)
				return !strings.Contains(stderr, "connection refused") && !strings.Contains(stderr, "no such file")
			})
			if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestAPingWithoutAnAgentFailsInTime(t *testing.T) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "agent.sock")
	if code, _, stderr := verb(t, "probe", "guest-agent-ping", "--socket="+socket); code != 1 || !strings.Contains(stderr, "connecting") {
		t.Errorf("no QEMU: exit code %d, %q", code, stderr)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, conn) // a guest without an agent
			_ = conn.Close()
		}
	}()
	if code, _, stderr := verb(t, "probe", "guest-agent-ping", "--timeout=2s", "--socket="+socket); code != 1 || !strings.Contains(stderr, "no answer") {
		t.Errorf("no agent: exit code %d, %q", code, stderr)
	}
}

// probe runs a probe of a guest without an agent, which fails if it counts.
func (r *running) probe(args ...string) (counts bool, said string) {
	r.t.Helper()
	args = slices.Concat([]string{"probe", args[0], "--dir=" + r.dir, "--socket=" + filepath.Join(r.dir, layout.AgentSocket)}, args[1:])
	code, said, stderr := verb(r.t, args...)
	return code != 0, said + stderr
}

// excuses waits until the launcher, which has a monitor of its own, excuses the guest.
func (r *running) excuses(want string) {
	r.t.Helper()
	waitFor(r.t, "the excuse "+want, func() bool {
		counts, said := r.probe("guest-agent-ping", "--liveness", "--timeout=4m")
		return !counts && strings.Contains(said, want)
	})
	if counts, said := r.probe("guest-agent-ping"); !counts {
		r.t.Errorf("a readiness probe succeeds: %s", said)
	}
}

func (r *running) counts() {
	r.t.Helper()
	waitFor(r.t, "a liveness probe that counts", func() bool {
		counts, _ := r.probe("guest-agent-ping", "--liveness", "--timeout=4m")
		return counts
	})
	if fails, said := r.probe("guest-began", "--timeout=4m"); fails {
		r.t.Errorf("a guest that runs has not begun: %s", said)
	}
}

func TestALivenessProbeCountsOnlyWhileTheGuestRunsHere(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	r.excuses("its QEMU has not started")
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs("-S"), GracePeriodSeconds: 3600}}); reply.Error != "" {
		t.Fatalf("starting QEMU: %+v", reply)
	}
	m := r.monitor()
	r.excuses(`QEMU's state "prelaunch"`)
	if early, said := r.probe("guest-began", "--timeout=200ms"); !early || !strings.Contains(said, "has not run here for 200ms") {
		t.Errorf("a guest that waits for its disks: %s", said)
	}
	execute(t, m, "cont", nil)
	awaitRunState(t, m, "running")
	r.counts()
	c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000})
	r.excuses("held still for a snapshot")
	c.release("snap", "")
	r.counts()
	execute(t, m, "stop", nil)
	r.excuses(`QEMU's state "paused"`)
	execute(t, m, "cont", nil)
	r.counts()
	if reply := c.ask(launch.Request{Stop: &launch.Stop{GracePeriodSeconds: 3600}}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	r.excuses("it is being ended")
}

func TestLivenessProbesWhileAGuestMigrates(t *testing.T) {
	p := newPair(t)
	p.source.counts()
	p.target.excuses("it has not arrived")
	p.migrate(t)
	p.source.excuses("it is being migrated")
	// While it sends its guest, QEMU does not answer.
	sender := p.source.child("qemu-system-x86")
	if err := syscall.Kill(sender, syscall.SIGSTOP); sender == 0 || err != nil {
		t.Fatalf("stopping the source's QEMU, process %d: %v", sender, err)
	}
	p.source.excuses("it is being migrated")
	if err := syscall.Kill(sender, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.target.excuses("it has not arrived")
	execute(t, p.from, "migrate-continue", properties{"state": "pre-switchover"})
	awaitMigration(t, p.from, "completed")
	p.source.excuses("it was sent to another node")
	awaitRunState(t, p.to, "paused")
	p.target.excuses("it has not arrived")
	if early, said := p.target.probe("guest-began", "--timeout=200ms"); !early {
		t.Errorf("a guest that has not run at the target has begun: %s", said)
	}
	execute(t, p.to, "cont", nil)
	awaitRunState(t, p.to, "running")
	p.target.counts()
}

// A monitor that nobody reads holds only so many commands.
func TestASilentQEMUIsAskedOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan string)
		var status asking
		ask := func() string {
			return status.answer(func(f func()) { go f() }, nil, func() string {
				asked++
				return <-answer
			})
		}
		for range 3 {
			if got := ask(); got != "" || asked != 1 {
				t.Errorf("a silent QEMU has said %q after %d questions", got, asked)
			}
		}
		answer <- "paused"
		if got := ask(); got != "paused" || asked != 1 {
			t.Errorf("it says %q after %d questions", got, asked)
		}
		go func() { answer <- "running" }()
		if got := ask(); got != "running" || asked != 2 {
			t.Errorf("then it says %q after %d questions", got, asked)
		}
	})
}

// A probe has begun before its guest was stopped.
func TestAProbeThatFailsAsksAgainWhetherItCounts(t *testing.T) {
	r := newLauncher(t)
	r.start(30)
	listener, err := net.Listen("unix", filepath.Join(r.dir, layout.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	m, probed := r.monitor(), make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = m.Execute(t.Context(), "stop", nil, nil)
			_ = conn.Close() // fails the probe
		}
		probed <- err
	}()
	if counts, said := r.probe("guest-agent-ping", "--liveness", "--timeout=4m"); counts || !strings.Contains(said, "it is stopped") {
		t.Errorf("it counts: %v, %s", counts, said)
	}
	if err := <-probed; err != nil {
		t.Error(err)
	}
}

// Beside virt-handler the probe must stay after it has written its result, because the kubelet restarts an ended
// container; it must end when it is told to.
func TestTheProbeStaysWhereItIsToHold(t *testing.T) {
	out := filepath.Join(t.TempDir(), "node.json")
	cmd := exec.Command(os.Args[0], "probe-node", "--qemu", "/no/such/qemu", "--hold", "--out", out)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	says, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	holds := false
	for lines := bufio.NewScanner(says); !holds && lines.Scan(); {
		holds = strings.Contains(lines.Text(), "holding until told to end")
	}
	if _, err := os.Stat(out); err != nil || !holds {
		t.Errorf("it holds: %v, with a result: %v", holds, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("it has ended before it was told to: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// A node must not stay without guests because its CPUs were busy when virt-handler came.
func TestAStarvedNodeIsProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		err := probeUntilJudged(t.Context(), lineLog{w: t.Output()}, func() (nodeprobe.Result, error) {
			at = append(at, time.Since(began))
			return nodeprobe.Result{Starved: len(at) < 3}, nil
		})
		want := []time.Duration{0, starvedPause, 2 * starvedPause}
		if err != nil || !slices.Equal(at, want) {
			t.Errorf("it is probed at %v, %v", at, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		err := probeUntilJudged(t.Context(), lineLog{w: t.Output()}, func() (nodeprobe.Result, error) {
			probes++
			return nodeprobe.Result{Starved: true, TCG: nodeprobe.Accelerator{Usable: true}}, nil
		})
		if err != nil || probes != kvmProbes {
			t.Errorf("a node that can emulate is probed %d times, %v", probes, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	probes := 0
	err := probeUntilJudged(ctx, lineLog{w: t.Output()}, func() (nodeprobe.Result, error) {
		probes++
		cancel()
		return nodeprobe.Result{Starved: true}, nil
	})
	if err != nil || probes != 1 {
		t.Errorf("%d probes after the end, %v", probes, err)
	}
}

func TestTheNodeIsProbedByRunningQEMU(t *testing.T) {
	out := filepath.Join(t.TempDir(), "node.json")
	if code, _, stderr := verb(t, "probe-node", "--qemu", qemuBinary(t), "--root", shipped.File(t, "/"), "--out", out); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var r nodeprobe.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	t.Log(summary(r))
	if r.KVM.Usable == (r.KVM.Reason != "") || r.TCG.Usable == (r.TCG.Reason != "") {
		t.Errorf("KVM is %+v, emulation %+v", r.KVM, r.TCG)
	}
	// Whether a busy machine is through with UEFI in time does not matter here: package bootprobe's test waits for it.
	if late := strings.Contains(r.TCG.UEFI, "did not finish within"); !r.TCG.Usable || r.TCG.UEFI != "" && !late {
		t.Errorf("emulation is %+v; it works on every host", r.TCG)
	}
	if r.QEMU == "" || !slices.Contains(r.MachineTypes, "q35") || !slices.Contains(r.CPUModels, "qemu64") || slices.Contains(r.CPUModels, "max") {
		t.Errorf("%+v", r)
	}
	kvmIsAsSaid(t, r)
}

// kvmIsAsSaid compares the result with the device, and, if KVM is called usable, with guests that boot with it.
func kvmIsAsSaid(t *testing.T, r nodeprobe.Result) {
	t.Helper()
	if _, err := os.Stat(layout.KVMDevice); (err != nil) != r.KVM.Absent || r.KVM.Absent && r.KVM.Usable {
		t.Errorf("KVM is %+v, and the device: %v", r.KVM, err)
	}
	if (r.HostModel != "") && !r.KVM.Usable {
		t.Errorf("without KVM the host's model is %q", r.HostModel)
	}
	if !r.KVM.Usable {
		return
	}
	for _, firmware := range []bootprobe.Firmware{bootprobe.BIOS, bootprobe.UEFI} {
		again := bootprobe.Probe{QEMU: qemuBinary(t), Root: shipped.File(t, "/"), Accel: bootprobe.KVM, Firmware: firmware, Deadline: patience}.Run(t.Context())
		if !again.OK {
			t.Errorf("KVM is called usable, and through %s %s", firmware, again.Reason)
		}
	}
}

func TestWithoutQEMUTheProbeReportsIt(t *testing.T) {
	code, stdout, stderr := verb(t, "probe-node", "--qemu", "/no/such/qemu")
	var r nodeprobe.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %s", code, err, stderr)
	}
	if r.Use() != "" || !strings.Contains(r.TCG.Reason, "/no/such/qemu") || !strings.Contains(stderr, "guests can run with nothing") {
		t.Errorf("%+v, %s", r, stderr)
	}
}

func TestTheAcceleratorCanBeFixed(t *testing.T) {
	code, stdout, stderr := verb(t, "probe-node", "--qemu", qemuBinary(t), "--accel", "tcg")
	var r nodeprobe.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %s", code, err, stderr)
	}
	if r.Use() != "tcg" || r.Requested != "tcg" || r.KVM.Usable || r.KVM.Milliseconds != 0 {
		t.Errorf("%+v", r)
	}
	if code, _, stderr := verb(t, "probe-node", "--accel", "xen"); code != 1 || !strings.Contains(stderr, `DRYDOCK_ACCEL) is "xen"; it must be kvm, tcg or empty`) {
		t.Errorf("an unknown accelerator: exit code %d, %s", code, stderr)
	}
}

func TestTheHostsModelIsItsVendorsNewest(t *testing.T) {
	for name, c := range map[string]struct {
		cpuinfo string
		usable  []string
		want    string
	}{
		"Intel":             {"processor\t: 0\nvendor_id\t: GenuineIntel\n", []string{"EPYC", "Haswell", "Nehalem", "qemu64"}, "Haswell"},
		"AMD":               {"vendor_id\t: AuthenticAMD\n", []string{"EPYC", "Haswell", "Opteron_G1"}, "EPYC"},
		"nothing that fits": {"vendor_id\t: GenuineIntel\n", []string{"qemu64"}, ""},
		"an unknown vendor": {"vendor_id\t: CentaurHauls\n", []string{"qemu64"}, ""},
		"no x86 at all":     {"CPU implementer\t: 0x41\n", []string{"qemu64"}, ""},
	} {
		if got := hostModel(c.cpuinfo, c.usable); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestUnknownVerbsAreRefused(t *testing.T) {
	if code, _, stderr := verb(t, "sail"); code != 1 || !strings.Contains(stderr, `"sail" is none of probe, probe-node, hold`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := verb(t, "probe"); code != 1 || !strings.Contains(stderr, "probe needs one of") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

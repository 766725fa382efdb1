package launcher

import (
	"bufio"
	"bytes"
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

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/launcher/bootprobe"
)

// verb runs one of virt-launcher's small programs to its end.
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

// runningAgent runs Debian's guest agent in place of a guest's.
func runningAgent(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("qemu-ga")
	if err != nil {
		t.Fatalf("this test needs the guest agent (apt-get install qemu-guest-agent): %v", err)
	}
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent.sock")
	cmd := exec.Command(program, "--method=unix-listen", "--path="+socket, "--statedir="+dir,
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
		"a program that takes long":  {[]string{"exec", "--timeout=300ms", "--", "/bin/sleep", "5"}, 1, "", "deadline exceeded"},
		"a program that is killed":   {[]string{"exec", "--timeout=4m", "--", "/bin/sh", "-c", "kill -9 $$"}, 1, "", "a signal ended /bin/sh"},
		"nothing to run":             {[]string{"exec", "--timeout=1s", "--"}, 1, "", "probe exec needs a command"},
		"an unknown probe":           {[]string{"dance"}, 1, "", `"dance" is none of guest-agent-ping, exec`},
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
	if code, _, stderr := verb(t, "probe", "guest-agent-ping", "--timeout=200ms", "--socket="+socket); code != 1 || !strings.Contains(stderr, "no answer") {
		t.Errorf("no agent: exit code %d, %q", code, stderr)
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

func TestTheNodeIsProbedByRunningQEMU(t *testing.T) {
	out := filepath.Join(t.TempDir(), "node.json")
	if code, _, stderr := verb(t, "probe-node", "--qemu", qemuBinary(t), "--out", out); code != 0 {
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
	if !r.TCG.Usable || r.TCG.UEFI != "" {
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
		again := bootprobe.Probe{QEMU: qemuBinary(t), Accel: bootprobe.KVM, Firmware: firmware, Deadline: patience}.Run(t.Context())
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

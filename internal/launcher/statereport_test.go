package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
)

// report runs the verb for one process of QEMU, which is not the only one on the machine.
func (r *running) report(pid int, cgroup string) launch.Report {
	r.t.Helper()
	proc := r.t.TempDir()
	if err := os.Symlink(fmt.Sprint("/proc/", pid), filepath.Join(proc, strconv.Itoa(pid))); err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	if code, err := (reporter{out: &out, proc: proc, cgroup: cgroup, dir: r.dir}).run(r.t.Context()); code != exitOK || err != nil {
		r.t.Fatalf("exit code %d, %v", code, err)
	}
	var report launch.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		r.t.Fatal(err)
	}
	return report
}

func TestTheStateOfQEMUIsReported(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	args := r.qemuArgs("-smp", "2", "-blockdev", "driver=null-co,node-name=n,size=1048576,read-only=on", "-device", "virtio-blk-pci,drive=n,id=disk-root")
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: args, GracePeriodSeconds: 3600}}); reply.Error != "" {
		t.Fatalf("starting QEMU: %+v", reply)
	}
	pid := r.child("qemu-system-x86")
	report := r.report(pid, t.TempDir())
	want := &launch.QEMUState{RunState: "running", CPUs: 2, Drives: []launch.DriveState{{Device: "/machine/peripheral/disk-root/virtio-backend", IOStatus: "ok", ReadOnly: true}}}
	if got, _ := json.Marshal(report.QEMU); report.QEMU == nil || string(got) != mustJSON(t, want) {
		t.Errorf("QEMU's state is %s, want %s", got, mustJSON(t, want))
	}
	execute(t, r.monitor(), "stop", nil)
	if state := r.report(pid, t.TempDir()).QEMU; state == nil || state.RunState != "paused" {
		t.Errorf("the state of a guest that stands still is %+v", state)
	}

	// A QEMU that does not answer is one of the things that a diagnosis is for.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	report = r.report(pid, t.TempDir())
	if report.QEMU != nil || report.Process.ResidentKiB == nil || *report.Process.ResidentKiB == 0 || report.Process.Threads == nil {
		t.Errorf("of a silent QEMU the report is %s", mustJSON(t, report))
	}
	if report.Cgroup != (launch.CgroupReport{}) {
		t.Errorf("without a cgroup there is %s", mustJSON(t, report.Cgroup))
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "QEMU's answer", func() bool { return r.report(pid, t.TempDir()).QEMU != nil })
}

func mustJSON(t *testing.T, of any) string {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFiguresOfACgroup(t *testing.T) {
	for version, files := range map[string]map[string]string{
		"version 2": {
			"memory.current": "4096\n", "memory.peak": "8192\n", "memory.events": "low 0\nhigh 0\nmax 5\noom 1\noom_kill 2\n",
			"cpu.stat": "usage_usec 700\nuser_usec 1\nnr_throttled 3\nthrottled_usec 9\n",
		},
		"version 1": {
			"memory/memory.usage_in_bytes": "4096\n", "memory/memory.max_usage_in_bytes": "8192\n", "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"cpuacct/cpuacct.usage": "700999\n", "cpu/cpu.stat": "nr_periods 0\nnr_throttled 3\nthrottled_time 9000\n",
		},
	} {
		folder := t.TempDir()
		for name, text := range files {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const want = `{"memoryBytes":4096,"memoryPeakBytes":8192,"oomKills":2,"cpuMicroseconds":700,"throttledMicroseconds":9}`
		if got := mustJSON(t, cgroupReport(folder)); got != want {
			t.Errorf("%s: figures %s, want %s", version, got, want)
		}
		if err := os.WriteFile(filepath.Join(folder, "memory.current"), []byte("max\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if of := cgroupReport(folder).MemoryBytes; version == "version 2" && of != nil {
			t.Errorf("%s: what is no number is read as %d", version, *of)
		}
	}
}

func TestWithoutQEMUThereIsNoState(t *testing.T) {
	var out bytes.Buffer
	code, err := reporter{out: &out, proc: t.TempDir(), cgroup: t.TempDir(), dir: t.TempDir()}.run(t.Context())
	if code != exitFailed || !errors.Is(err, errNoQEMU) || out.Len() > 0 {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
}

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWhatIsUsedBetweenTwoLooksIsCounted(t *testing.T) {
	compiler, etcd := use{Part: "compiler"}, use{Part: "etcd"}
	of := func(pid, parent int, u use, own, children float64) process {
		return process{identity: identity{pid, 1}, parent: parent, use: u, own: own, children: children}
	}
	for name, c := range map[string]struct {
		before, after []process
		want          map[use]float64
	}{
		"a process computes": {
			before: []process{of(2, 1, etcd, 10, 0)}, after: []process{of(2, 1, etcd, 12.5, 0)},
			want: map[use]float64{etcd: 2.5},
		},
		"a process is new": {
			after: []process{of(2, 1, etcd, 0.5, 0)},
			want:  map[use]float64{etcd: 0.5},
		},
		"a child came and went between the looks": {
			before: []process{of(2, 1, compiler, 1, 0)}, after: []process{of(2, 1, compiler, 1, 3)},
			want: map[use]float64{compiler: 3},
		},
		"a child has ended, and what was seen of it is not counted again": {
			before: []process{of(2, 1, compiler, 1, 0), of(3, 2, etcd, 4, 1)}, after: []process{of(2, 1, compiler, 1, 5.5)},
			want: map[use]float64{compiler: 0.5},
		},
		"a child and its child have ended": {
			before: []process{of(2, 1, compiler, 1, 0), of(3, 2, etcd, 4, 1), of(4, 3, etcd, 2, 0)}, after: []process{of(2, 1, compiler, 1, 8)},
			want: map[use]float64{compiler: 1},
		},
		"a child has ended that nobody waits for": {
			before: []process{of(2, 1, compiler, 1, 0), of(3, 2, etcd, 4, 1)}, after: []process{of(2, 1, compiler, 1, 0)},
		},
		"another process has the number": {
			before: []process{of(2, 1, etcd, 10, 0)}, after: []process{{identity: identity{2, 9}, parent: 1, use: compiler, own: 1}},
			want: map[use]float64{compiler: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var a account
			if first := a.observe(c.before); len(first) > 0 {
				t.Errorf("the first look counts %v, which was used before", first)
			}
			got := a.observe(c.after)
			for u, seconds := range got {
				if seconds != c.want[u] {
					t.Errorf("%v: %v s, want %v", u, seconds, c.want[u])
				}
			}
			for u := range c.want {
				if _, counted := got[u]; !counted {
					t.Errorf("%v is not counted", u)
				}
			}
		})
	}
}

func TestAProcessSaysWhatItIsFor(t *testing.T) {
	cluster := use{Part: "drydock", Cluster: "ddtest"}
	for name, c := range map[string]struct {
		program program
		parent  use
		want    use
	}{
		"a guest": {
			program{pid: 7, args: strings.Fields("/usr/bin/qemu-system-x86_64 -accel tcg -name guest=e2e-drain-x_vm,debug-threads=on")}, cluster,
			use{Part: partGuest, Cluster: "ddtest", Guest: "e2e-drain-x_vm", PID: 7},
		},
		"a tool of libguestfs": {
			program{pid: 7, args: strings.Fields("qemu-system-x86_64 -name guestfs-abc,debug-threads=off")}, cluster,
			use{Part: "libguestfs (QEMU)", Cluster: "ddtest", Guest: "guestfs-abc", PID: 7},
		},
		"a part of the embedded Kubernetes": {
			program{args: []string{"/x/bin/drydock", "kube-apiserver", "--etcd-servers=x"}}, cluster,
			use{Part: "kube-apiserver", Cluster: "ddtest"},
		},
		"a cluster's supervisor, of which all of its processes descend": {
			program{args: []string{"drydock", "supervisor", "ddtest", "/var/lib/x"}}, use{Part: "compiler", Cluster: "other"},
			use{Part: "drydock", Cluster: "ddtest"},
		},
		"what the Go tool runs":          {program{args: []string{"/tmp/go-build1/b001/exe/release", "-version", "v1"}}, use{Part: "compiler"}, use{Part: "release"}},
		"what a test has compiled":       {program{args: []string{"go", "build", "./cmd/virt"}}, use{Part: partTest, Package: "/src/driver"}, use{Part: "compiler", Package: "/src/driver"}},
		"the make that everything is of": {program{args: []string{"make", "test"}}, use{Part: "bash"}, use{Part: "make"}},
		"the kernel's make":              {program{args: []string{"make", "bzImage"}}, use{Part: partImages}, use{Part: partC}},
		"what the kernel's make starts":  {program{args: []string{"scripts/basic/fixdep"}}, use{Part: partC}, use{Part: partC}},
		"a script of the Makefile's":     {program{args: []string{"bash", "hack/lint"}}, use{Part: "make"}, use{Part: "bash"}},
		"the linter":                     {program{args: []string{"bin/lint", "run"}}, use{Part: "bash"}, use{Part: "linter"}},
		"a component":                    {program{args: []string{"/usr/bin/virt", "handler"}}, cluster, use{Part: "virt-handler", Cluster: "ddtest"}},
		"a test binary":                  {program{args: []string{"/tmp/b001/driver.test"}, folder: "/src/driver"}, use{Part: "compiler"}, use{Part: partTest, Package: "/src/driver"}},
		"a cluster's own":                {program{args: []string{"x"}, environment: []string{"A=1", "DRYDOCK_NAME=dd"}}, use{}, use{Part: "x", Cluster: "dd"}},
		"a kernel thread":                {program{}, use{}, use{Part: "the kernel"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := useOf(c.program, c.parent); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A test with a guest of its own runs for two seconds beside one that waits during the second of them.
func TestTheReportNamesWhatWasUsed(t *testing.T) {
	folder := t.TempDir()
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	lines(t, filepath.Join(folder, "tests-ddtest-12.json"),
		event{at(0), "run", "e2e", "TestA"}, event{at(0), "run", "e2e", "TestA/part"}, event{at(0), "run", "e2e", "TestB"},
		event{at(1), "pause", "e2e", "TestB"}, event{at(2), "pass", "e2e", "TestA"}, event{at(2), "cont", "e2e", "TestB"}, event{at(3), "pass", "e2e", "TestB"})
	guest := entry{use{Part: partGuest, Cluster: "ddtest", Guest: "e2e-a-x1_vm", PID: 5}, 4}
	server := entry{use{Part: "kube-apiserver", Cluster: "ddtest"}, 1}
	lines(t, samplesFile(folder),
		sample{at(0), 100, nil}, sample{at(1), 106, []entry{guest, server}}, sample{at(2).Add(-time.Millisecond), 112, []entry{guest, server}},
		sample{at(3), 113, []entry{server, {use{Part: "compiler"}, 1}}})

	var out strings.Builder
	if err := report(folder, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12 of all processes; the CPUs computed 13",
		"8  66.7 %  guests (QEMU)", "3  25.0 %  kube-apiserver",
		"1 guests were started: 8.0 s each",
		"10      8      2  TestA", "2      0      2  TestB",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

func TestAProcessThatComputesIsSeen(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = busy.Process.Kill(), busy.Wait() })
	// Long enough that a busy machine lets it compute.
	for watched := 4 * interval; watchedFor(t, watched) == 0; watched *= 2 {
		if watched > 2*time.Minute {
			t.Fatal("no sample has what a process that never rests has computed")
		}
	}
}

func watchedFor(t *testing.T, watched time.Duration) (seen float64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), watched)
	defer stop()
	folder := t.TempDir()
	if err := watch(ctx, folder); err != nil {
		t.Fatal(err)
	}
	if err := readSamples(folder, func(s sample) {
		for _, e := range s.Used {
			if e.Part == partTest || e.Part == "sh" {
				seen += e.Seconds
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return seen
}

func lines[T any](t *testing.T, file string, all ...T) {
	t.Helper()
	var text strings.Builder
	for _, each := range all {
		if err := json.NewEncoder(&text).Encode(each); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

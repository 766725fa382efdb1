package pinning

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/vcpus"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// qemu is a process with two virtual CPUs (the threads 11 and 12 in its namespace) and two other threads.
type qemu struct {
	asked   int
	looks   int
	silent  bool
	has     []int         // the container's CPUs
	threads map[int]int   // inner to outer
	cpus    map[int][]int // of each thread
	ends    int           // a thread that ends when it is pinned
}

func started() *qemu {
	all := []int{2, 3, 4}
	return &qemu{
		has: all, threads: map[int]int{10: 110, 11: 111, 12: 112, 13: 113},
		cpus: map[int][]int{110: all, 111: all, 112: all, 113: all},
	}
}

func (q *qemu) Execute(_ context.Context, command string, _, result any) error {
	if command != "query-cpus-fast" {
		return errors.New("unexpected command " + command)
	}
	q.asked++
	if q.silent {
		return errors.New("no answer")
	}
	*result.(*vcpus.List) = vcpus.List{{Index: 0, Thread: 11}, {Index: 1, Thread: 12}}
	return nil
}

func (q *qemu) ExecuteWithFile(context.Context, string, any, *os.File, any) error {
	return errors.New("unexpected file")
}

func (q *qemu) CPUs() ([]int, error) { return q.has, nil }

func (q *qemu) Locate(cpus []int) []cpupinning.HostCPU {
	var list []cpupinning.HostCPU
	for _, n := range cpus {
		list = append(list, cpupinning.HostCPU{Number: n, Core: n})
	}
	return list
}

func (q *qemu) Threads() map[int]int {
	q.looks++
	return q.threads
}

func (q *qemu) Affinity(thread int) ([]int, error) {
	cpus, has := q.cpus[thread]
	if !has {
		return nil, errors.New("no such thread")
	}
	return cpus, nil
}

func (q *qemu) SetAffinity(thread int, cpus []int) error {
	if thread == q.ends {
		delete(q.cpus, thread)
		return nil
	}
	if slices.ContainsFunc(cpus, func(n int) bool { return !slices.Contains(q.has, n) }) {
		return errors.New("not a CPU of the container")
	}
	q.cpus[thread] = cpus
	return nil
}

func dedicated(isolate bool) concern.Round {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Cores: 2, DedicatedCPUPlacement: true, IsolateEmulatorThread: isolate}
	return concern.Round{VMI: vmi, Now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
}

// podOf returns a pod that has asked for CPUs.
func podOf(cpus int) *vmihandler.Pod {
	limits := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
	return &vmihandler.Pod{Resources: &corev1.ResourceRequirements{Limits: limits}}
}

func round(t *testing.T, c *Concern, q *qemu, r concern.Round) Plan {
	t.Helper()
	seen, err := c.Observe(t.Context(), concern.QueryOf(q), r)
	if err != nil {
		t.Fatal(err)
	}
	plan := c.Decide(r, seen)
	if plan.Due {
		if err := c.Act(t.Context(), q, r, plan); err != nil {
			t.Fatal(err)
		}
	}
	return plan
}

func TestThreadsArePinned(t *testing.T) {
	for name, test := range map[string]struct {
		isolate bool
		others  []int
	}{
		"QEMU's other threads have a CPU":              {isolate: true, others: []int{4}},
		"QEMU's other threads run where there is time": {others: []int{2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			q := started()
			c, r := New(q), dedicated(test.isolate)
			r.Pod = podOf(3)
			round(t, c, q, r)
			want := map[int][]int{110: test.others, 111: {2}, 112: {3}, 113: test.others}
			if diff := cmp.Diff(want, q.cpus); diff != "" {
				t.Error(diff)
			}
			if again := round(t, c, q, r); again.Due || !again.Settled || again.After == 0 || q.asked != 1 {
				t.Errorf("the next round: %+v; QEMU was asked %d times", again, q.asked)
			}
		})
	}
}

func TestThreadsFollowTheContainersCPUs(t *testing.T) {
	q := started()
	c, r := New(q), dedicated(true)
	round(t, c, q, r)
	q.has = []int{5, 6, 7} // the kernel moves all threads that may not stay
	for thread := range q.cpus {
		q.cpus[thread] = q.has
	}
	round(t, c, q, r)
	if diff := cmp.Diff(map[int][]int{110: {7}, 111: {5}, 112: {6}, 113: {7}}, q.cpus); diff != "" {
		t.Error(diff)
	}
}

// Whatever happens, there is another look.
func TestAGuestThatCantBePinnedSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*qemu)
		want   string
	}{
		"too few CPUs": {func(q *qemu) { q.has = []int{2, 3} },
			"the pod has 2 CPUs of its node, but the guest needs 3 for itself: they are not pinned"},
		"a thread that is none of QEMU's": {func(q *qemu) { delete(q.threads, 12) },
			"1 of QEMU's virtual CPUs have no thread, and 1 have one: they are not pinned"},
		"no thread that is QEMU's": {func(q *qemu) { q.threads = nil },
			"2 of QEMU's virtual CPUs have no thread, and 0 have one: they are not pinned"},
		"no answer": {func(q *qemu) { q.silent = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := started()
			test.change(q)
			c, r := New(q), dedicated(true)
			seen, err := c.Observe(t.Context(), concern.QueryOf(q), r)
			if (err != nil) != q.silent {
				t.Errorf("observing: %v", err)
			}
			plan := c.Decide(r, seen)
			if plan.Problem != test.want || plan.After == 0 {
				t.Errorf("the plan is %+v, want the problem %q", plan, test.want)
			}
		})
	}
}

// Otherwise two such guests would run on the same first CPUs of their node.
func TestAGuestWithEverybodysCPUsIsNotPinned(t *testing.T) {
	q := started()
	c, r := New(q), dedicated(true)
	r.Pod = podOf(3)
	round(t, c, q, r)
	q.has = []int{1, 2, 3, 4} // its node's kubelet has lost the policy
	plan := round(t, c, q, r)
	for thread, cpus := range q.cpus {
		if !slices.Equal(cpus, q.has) {
			t.Errorf("thread %d runs on the CPUs %v", thread, cpus)
		}
	}
	if !strings.HasPrefix(plan.Problem, "the pod has 4 CPUs of its node, but has asked for 3") {
		t.Errorf("the problem is %q", plan.Problem)
	}
	r.Pod.Resources = nil // the kubelet does not say; an even number is the most that the pod may have
	if plan = round(t, c, q, r); plan.Problem != "" || !slices.Equal(q.cpus[111], []int{1}) {
		t.Errorf("without the kubelet's report: %+v; the CPUs are %v", plan, q.cpus)
	}
}

// A guest can cause any number of rounds.
func TestThreadsAreReadOnceAMinute(t *testing.T) {
	q := started()
	c, r := New(q), dedicated(true)
	round(t, c, q, r)
	for _, step := range []struct {
		after time.Duration
		looks int
		next  time.Duration
	}{{0, 2, time.Minute}, {20 * time.Second, 2, 40 * time.Second}, {39 * time.Second, 2, time.Second}, {time.Second, 3, time.Minute}} {
		r.Now = r.Now.Add(step.after)
		if plan := round(t, c, q, r); q.looks != step.looks || plan.After != step.next {
			t.Errorf("at %s: %d looks, and the next one after %s, want %d and %s", r.Now, q.looks, plan.After, step.looks, step.next)
		}
	}
	q.has = []int{5, 6, 7}
	if round(t, c, q, r); q.looks != 4 || !slices.Equal(q.cpus[111], []int{5}) {
		t.Errorf("other CPUs: %d looks, the threads have %v", q.looks, q.cpus)
	}
}

func TestQEMUIsAskedAgainForMissingThreads(t *testing.T) {
	q := started()
	c, r := New(q), dedicated(true)
	threads := q.threads
	q.threads = nil
	round(t, c, q, r)
	q.threads, r.Now = threads, r.Now.Add(time.Minute)
	if round(t, c, q, r); q.asked != 2 || !slices.Equal(q.cpus[111], []int{2}) {
		t.Errorf("QEMU was asked %d times, its threads run on %v", q.asked, q.cpus)
	}
}

func TestAThreadThatEndsIsNoFault(t *testing.T) {
	q := started()
	q.ends = 113
	round(t, New(q), q, dedicated(true))
	if diff := cmp.Diff(map[int][]int{110: {4}, 111: {2}, 112: {3}}, q.cpus); diff != "" {
		t.Error(diff)
	}
}

func TestOtherGuestsAreLeftAlone(t *testing.T) {
	q := started()
	r := dedicated(false)
	r.VMI.Spec.Domain.CPU.DedicatedCPUPlacement = false
	if plan := round(t, New(q), q, r); plan.Due || plan.After != 0 || q.asked != 0 {
		t.Errorf("%+v; QEMU was asked %d times", plan, q.asked)
	}
}

func here(qemu int) Process {
	return Process{Launcher: os.Getpid(), Alive: func() error { return nil }, QEMU: func() int { return qemu }}
}

func sleeper(t *testing.T, attributes *syscall.SysProcAttr) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1h")
	cmd.SysProcAttr = attributes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func cpusOf(t *testing.T, thread int) []int {
	t.Helper()
	cpus, err := Process{}.Affinity(thread)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

func TestTheKernelPinsAProcess(t *testing.T) {
	pid := sleeper(t, nil)
	p := here(pid)
	has, err := p.CPUs()
	if err != nil || len(has) == 0 || len(p.Locate(has)) != len(has) {
		t.Fatalf("CPUs %v, %v", has, err)
	}
	last := has[len(has)-1:]
	thread := p.Threads()[pid]
	if err := p.SetAffinity(thread, last); err != nil {
		t.Fatal(err)
	}
	if got := cpusOf(t, thread); !slices.Equal(got, last) {
		t.Errorf("the thread runs on %v, want %v", got, last)
	}
	p.Alive = func() error { return errors.New("virt-launcher has ended") }
	if _, err := p.CPUs(); err == nil {
		t.Error("the CPUs of an ended virt-launcher count")
	}
	if err := p.SetAffinity(thread, has); err == nil || len(p.Threads()) != 0 {
		t.Error("a thread is pinned for an ended virt-launcher")
	}
}

// QEMU's number, or a thread's, may have become another process's, or be a lie.
func TestOtherProcessesAreNotPinned(t *testing.T) {
	own, other := sleeper(t, nil), sleeper(t, nil)
	all := cpusOf(t, other)
	if len(all) < 2 {
		t.Skip("the machine has one CPU")
	}
	if err := here(own).SetAffinity(other, all[:1]); err != nil {
		t.Errorf("a thread that is no longer QEMU's: %v", err)
	}
	if got := cpusOf(t, other); !slices.Equal(got, all) {
		t.Errorf("another process has been pinned to %v", got)
	}
	if os.Getuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	outside := sleeper(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	if threads := here(outside).Threads(); len(threads) != 0 {
		t.Errorf("the threads of another container's process count: %v", threads)
	}
	if err := here(outside).SetAffinity(outside, all[:1]); err == nil || !strings.Contains(err.Error(), "not in the PID namespace") {
		t.Errorf("pinning a process of another container: %v", err)
	}
	if got := cpusOf(t, outside); !slices.Equal(got, all) {
		t.Errorf("another container's process has been pinned to %v", got)
	}
}

func TestAThreadThatGetsAnEndedOnesNumberKeepsItsCPUs(t *testing.T) {
	pid := sleeper(t, nil)
	all := cpusOf(t, pid)
	if err := pin(pid, all[:1], func() error { return syscall.ESRCH }); err != nil {
		t.Error(err)
	}
	if got := cpusOf(t, pid); !slices.Equal(got, all) {
		t.Errorf("it runs on the CPUs %v, want %v", got, all)
	}
}

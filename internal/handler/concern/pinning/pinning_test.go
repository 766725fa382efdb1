package pinning

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

// qemu is a process with two virtual CPUs (the threads 11 and 12 in its namespace) and two other threads.
type qemu struct {
	asked   int
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
	answer := result.(*[]struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
	})
	for i, thread := range []int{11, 12} {
		*answer = append(*answer, struct {
			Index  int `json:"cpu-index"`
			Thread int `json:"thread-id"`
		}{i, thread})
	}
	return nil
}

func (q *qemu) ExecuteWithFile(context.Context, string, any, *os.File, any) error {
	return errors.New("unexpected file")
}

func (q *qemu) CPUs() ([]cpupinning.HostCPU, error) {
	var list []cpupinning.HostCPU
	for _, n := range q.has {
		list = append(list, cpupinning.HostCPU{Number: n, Core: n})
	}
	return list, nil
}

func (q *qemu) Threads() map[int]int { return q.threads }

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
		return errors.New("no such thread")
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
	return concern.Round{VMI: vmi}
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

func TestAGuestThatCantBePinnedSaysWhy(t *testing.T) {
	q := started()
	q.has = []int{1, 2}
	if plan := round(t, New(q), q, dedicated(true)); plan.Due || plan.Problem != "the pod has 2 CPUs of its node, but the guest needs 3 for itself: they are not pinned" {
		t.Errorf("too few CPUs: %+v", plan)
	}
	q = started()
	delete(q.threads, 12)
	if plan := round(t, New(q), q, dedicated(false)); plan.Due || plan.Problem != "1 virtual CPUs have no thread: they are not pinned" {
		t.Errorf("a thread that is no thread of QEMU's: %+v", plan)
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

func TestTheKernelPinsAProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := Process{Launcher: os.Getpid(), QEMU: func() int { return cmd.Process.Pid }}
	has, err := p.CPUs()
	if err != nil || len(has) == 0 {
		t.Fatalf("CPUs %v, %v", has, err)
	}
	last := []int{has[len(has)-1].Number}
	thread := p.Threads()[cmd.Process.Pid]
	if err := p.SetAffinity(thread, last); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Affinity(thread); err != nil || !slices.Equal(got, last) {
		t.Errorf("the thread runs on %v (%v), want %v", got, err, last)
	}
}

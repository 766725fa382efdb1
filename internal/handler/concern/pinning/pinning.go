// Package pinning gives each virtual CPU of a running guest with dedicated CPUs one of them. It is a concern (package
// concern).
//
// cpupinning.Place is the rule. The kubelet alone decides which CPUs the container has; it may change them while the guest
// runs, so each round compares them, and once a minute all threads. QEMU is not believed: only threads of the process at its
// monitor are pinned, only if it is in virt-launcher's PID namespace, and only to CPUs of their container, which the kernel
// enforces.
package pinning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/vcpus"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// again is the time between two looks at all threads.
const again = time.Minute

// Node is QEMU's process on its node.
type Node interface {
	// CPUs returns the sorted CPUs of virt-launcher, which nobody pins: those of the container.
	CPUs() ([]int, error)
	// Locate returns the places of CPUs.
	Locate(cpus []int) []cpupinning.HostCPU
	// Threads returns QEMU's threads on the node by their numbers in its own PID namespace.
	Threads() map[int]int
	// Affinity returns the sorted CPUs of a thread.
	Affinity(thread int) ([]int, error)
	// SetAffinity fails if the thread is not QEMU's, and does nothing if it has ended.
	SetAffinity(thread int, cpus []int) error
}

// Seen is the last look at the guest's threads.
type Seen struct {
	at      time.Time  // zero before the first look
	vcpus   vcpus.List // with the threads' numbers on the node
	missing int        // virtual CPUs without a thread of QEMU's
	numbers []int      // of cpus
	cpus    []cpupinning.HostCPU
	threads map[int][]int // the CPUs of each of QEMU's threads
}

// Plan is the next step.
type Plan struct {
	concern.Next
	Pin map[int][]int // the CPUs of the threads that have others
}

// Concern is the threads of one guest.
type Concern struct {
	node Node
	mu   sync.Mutex
	// vcpus is QEMU's answer: a guest with dedicated CPUs keeps its virtual CPUs.
	vcpus vcpus.List
	seen  Seen
	// changed is set if the threads have been pinned since.
	changed bool
}

// New returns the threads of a guest about which nothing is known yet.
func New(node Node) *Concern { return &Concern{node: node} }

// HandleEvent implements concern.Concern.
func (*Concern) HandleEvent(qmp.Event) bool { return false }

// Observe implements concern.Concern. It asks QEMU until each virtual CPU has a thread.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cpupinning.Dedicated(&r.VMI.Spec.Domain) {
		return Seen{}, nil
	}
	numbers, err := c.node.CPUs()
	if err != nil {
		return c.seen, err
	}
	if !c.outdated(numbers, r.Now) {
		return c.seen, nil
	}
	if err := c.ask(ctx, q); err != nil {
		return c.seen, err
	}
	c.seen, c.changed = c.look(numbers, r.Now), false
	if c.seen.missing > 0 {
		c.vcpus = nil
	}
	return c.seen, nil
}

func (c *Concern) outdated(numbers []int, now time.Time) bool {
	return c.changed || c.seen.at.IsZero() || now.Sub(c.seen.at) >= again || !slices.Equal(numbers, c.seen.numbers)
}

func (c *Concern) ask(ctx context.Context, q concern.Query) error {
	if len(c.vcpus) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := q.Execute(ctx, "query-cpus-fast", nil, &c.vcpus); err != nil {
		return fmt.Errorf("asking for the threads of virtual CPUs: %w", err)
	}
	return nil
}

func (c *Concern) look(numbers []int, now time.Time) Seen {
	s := Seen{at: now, numbers: numbers, cpus: c.node.Locate(numbers), threads: map[int][]int{}}
	outer := c.node.Threads()
	for _, v := range c.vcpus {
		thread, has := outer[v.Thread]
		if !has {
			s.missing++
			continue
		}
		s.vcpus = append(s.vcpus, vcpus.VCPU{Index: v.Index, Thread: thread})
	}
	for _, thread := range outer {
		if cpus, err := c.node.Affinity(thread); err == nil { // otherwise it has ended
			s.threads[thread] = cpus
		}
	}
	return s
}

// Decide implements concern.Concern.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	if !cpupinning.Dedicated(&r.VMI.Spec.Domain) {
		return Plan{}
	}
	// Without a look, the next one is not urgent: QEMU did not answer.
	p := Plan{Next: concern.Next{After: again}, Pin: map[int][]int{}}
	switch {
	case seen.at.IsZero():
		return p
	case seen.missing > 0 || len(seen.vcpus) == 0:
		p.Problem = fmt.Sprintf("%d of QEMU's virtual CPUs have no thread, and %d have one: they are not pinned", seen.missing, len(seen.vcpus))
		return p
	}
	p.After = max(seen.at.Add(again).Sub(r.Now), time.Second)
	guest := cpupinning.Guest{VCPUs: seen.vcpus, Own: own(r), Isolate: r.VMI.Spec.Domain.CPU.IsolateEmulatorThread}
	placed, err := cpupinning.Place(guest, seen.cpus)
	if err != nil {
		p.Problem = err.Error()
	}
	for thread, has := range seen.threads {
		want, isVCPU := placed.Threads[thread]
		if !isVCPU {
			want = placed.Others
		}
		if !slices.Equal(has, want) {
			p.Pin[thread] = want
		}
	}
	p.Due, p.Settled = len(p.Pin) > 0, len(p.Pin) == 0
	return p
}

// own returns how many CPUs the guest's pod has asked for, or may have.
func own(r concern.Round) int64 {
	if r.Pod != nil && r.Pod.Resources != nil {
		if limit, limited := r.Pod.Resources.Limits[corev1.ResourceCPU]; limited {
			return limit.Value()
		}
	}
	return cpupinning.CPUs(&r.VMI.Spec, true)
}

// Report implements concern.Concern.
func (*Concern) Report(Plan, *vmihandler.Guest) {}

// Act implements concern.Concern.
func (c *Concern) Act(_ context.Context, _ concern.Monitor, _ concern.Round, plan Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	for _, thread := range slices.Sorted(maps.Keys(plan.Pin)) {
		if err := c.node.SetAffinity(thread, plan.Pin[thread]); err != nil {
			return fmt.Errorf("pinning QEMU's thread %d to the CPUs %v: %w", thread, plan.Pin[thread], err)
		}
	}
	return nil
}

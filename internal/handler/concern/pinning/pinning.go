// Package pinning gives each virtual CPU of a running guest with dedicated CPUs one of them. It is a concern (package
// concern).
//
// cpupinning.Place is the rule. The kubelet alone decides which CPUs the container has; it may change them while the guest
// runs, so the package looks again now and then. QEMU is not believed: only its own threads are pinned, and only to CPUs of
// its container, which the kernel enforces.
package pinning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// again is the time between two looks at CPUs that the kubelet may have changed.
	again = time.Minute
	// maxVCPUs bounds QEMU's answer.
	maxVCPUs = 512
)

// Node is QEMU's process on its node.
type Node interface {
	// CPUs returns the CPUs of virt-launcher, which nobody pins: those of the container.
	CPUs() ([]cpupinning.HostCPU, error)
	// Threads returns QEMU's threads on the node by their numbers in its own PID namespace.
	Threads() map[int]int
	// Affinity returns the sorted CPUs of a thread.
	Affinity(thread int) ([]int, error)
	SetAffinity(thread int, cpus []int) error
}

// Seen is the last look at the guest's threads.
type Seen struct {
	vcpus   []cpupinning.VCPU // with the threads' numbers on the node
	missing int               // virtual CPUs without a thread of QEMU's
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
	vcpus []cpupinning.VCPU
}

// New returns the threads of a guest about which nothing is known yet.
func New(node Node) *Concern { return &Concern{node: node} }

// HandleEvent implements concern.Concern.
func (*Concern) HandleEvent(qmp.Event) bool { return false }

// Observe implements concern.Concern. It asks QEMU once.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	if !cpupinning.Dedicated(&r.VMI.Spec.Domain) {
		return Seen{}, nil
	}
	if err := c.ask(ctx, q); err != nil {
		return Seen{}, err
	}
	cpus, err := c.node.CPUs()
	if err != nil {
		return Seen{}, err
	}
	s := Seen{cpus: cpus, threads: map[int][]int{}}
	outer := c.node.Threads()
	for _, v := range c.vcpus {
		thread, has := outer[v.Thread]
		if !has {
			s.missing++
			continue
		}
		s.vcpus = append(s.vcpus, cpupinning.VCPU{Index: v.Index, Thread: thread})
	}
	for _, thread := range outer {
		if s.threads[thread], err = c.node.Affinity(thread); err != nil {
			delete(s.threads, thread) // it has ended
		}
	}
	return s, nil
}

func (c *Concern) ask(ctx context.Context, q concern.Query) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vcpus != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	var answer []struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
	}
	if err := q.Execute(ctx, "query-cpus-fast", nil, &answer); err != nil {
		return fmt.Errorf("asking for the threads of virtual CPUs: %w", err)
	}
	if len(answer) == 0 || len(answer) > maxVCPUs {
		return fmt.Errorf("QEMU has %d virtual CPUs", len(answer))
	}
	for _, v := range answer {
		c.vcpus = append(c.vcpus, cpupinning.VCPU{Index: v.Index, Thread: v.Thread})
	}
	return nil
}

// Decide implements concern.Concern.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	if len(seen.vcpus) == 0 {
		return Plan{}
	}
	if seen.missing > 0 {
		return Plan{Next: concern.Next{After: again, Problem: fmt.Sprintf("%d virtual CPUs have no thread: they are not pinned", seen.missing)}}
	}
	placed, err := cpupinning.Place(seen.vcpus, seen.cpus, r.VMI.Spec.Domain.CPU.IsolateEmulatorThread)
	if err != nil {
		return Plan{Next: concern.Next{After: again, Problem: err.Error()}}
	}
	p := Plan{Pin: map[int][]int{}}
	for thread, has := range seen.threads {
		want, isVCPU := placed.Threads[thread]
		if !isVCPU {
			want = placed.Others
		}
		if !slices.Equal(has, want) {
			p.Pin[thread] = want
		}
	}
	p.Next = concern.Next{Due: len(p.Pin) > 0, After: again, Settled: len(p.Pin) == 0}
	return p
}

// Report implements concern.Concern.
func (*Concern) Report(Plan, *vmihandler.Guest) {}

// Act implements concern.Concern. A thread that ends meanwhile is no fault.
func (c *Concern) Act(_ context.Context, _ concern.Monitor, _ concern.Round, plan Plan) error {
	for _, thread := range slices.Sorted(maps.Keys(plan.Pin)) {
		err := c.node.SetAffinity(thread, plan.Pin[thread])
		if _, ended := c.node.Affinity(thread); err != nil && ended == nil {
			return fmt.Errorf("pinning QEMU's thread %d to the CPUs %v: %w", thread, plan.Pin[thread], err)
		}
	}
	return nil
}

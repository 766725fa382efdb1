// Package cpupinning decides on which CPUs of its node each thread of a guest with dedicated CPUs runs. It must not
// decide which CPUs the container has: the kubelet's static CPU manager does.
package cpupinning

import (
	"cmp"
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// Dedicated reports whether each virtual CPU has a CPU of the node for itself.
func Dedicated(domain *v1.DomainSpec) bool {
	return domain.CPU != nil && domain.CPU.DedicatedCPUPlacement
}

// CPUs returns how many CPUs of its node a guest with dedicated CPUs has: one for each virtual CPU, and one for QEMU's
// other threads if the guest asks for that. If even is set, the number is even.
func CPUs(spec *v1.VirtualMachineInstanceSpec, even bool) int64 {
	cpus := int64(machine.VCPUs(machine.Topology(spec)))
	if !spec.Domain.CPU.IsolateEmulatorThread {
		return cpus
	}
	cpus++
	if even {
		cpus += cpus % 2
	}
	return cpus
}

// VCPU is a virtual CPU and the number of its thread. Several may share one thread.
type VCPU struct{ Index, Thread int }

// HostCPU is a CPU of the node with the number of its package and of its core in the package.
type HostCPU struct{ Number, Package, Core int }

// Placement is the result of Place: the sorted CPUs of each virtual CPU's thread, and those of QEMU's other threads.
type Placement struct {
	Threads map[int][]int
	Others  []int
}

// Place gives each virtual CPU one of the container's CPUs, in the order of their numbers. Threads of one core follow
// each other in both orders, so that the guest's siblings are siblings on the node. With isolate, the other threads get the
// CPUs that are left, and otherwise all. It fails if the container has too few CPUs.
func Place(vcpus []VCPU, has []HostCPU, isolate bool) (Placement, error) {
	need := len(vcpus)
	if isolate {
		need++
	}
	if len(has) < need {
		return Placement{}, fmt.Errorf("the pod has %d CPUs of its node, but the guest needs %d for itself: they are not pinned", len(has), need)
	}
	vcpus, has = slices.Clone(vcpus), slices.Clone(has)
	slices.SortFunc(vcpus, func(a, b VCPU) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(has, func(a, b HostCPU) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Core, b.Core), cmp.Compare(a.Number, b.Number))
	})
	p := Placement{Threads: map[int][]int{}}
	for i, v := range vcpus {
		p.Threads[v.Thread] = append(p.Threads[v.Thread], has[i].Number)
	}
	if isolate {
		has = has[len(vcpus):]
	}
	for _, c := range has {
		p.Others = append(p.Others, c.Number)
	}
	slices.Sort(p.Others)
	for _, list := range p.Threads {
		slices.Sort(list)
	}
	return p, nil
}

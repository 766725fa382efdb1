// Package cpupinning decides on which CPUs of its node each thread of a guest with dedicated CPUs runs. It must not
// decide which CPUs the container has: the kubelet's static CPU manager does.
package cpupinning

import (
	"cmp"
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/vcpus"
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

// HostCPU is a CPU of the node with the number of its package and of its core in the package.
type HostCPU struct{ Number, Package, Core int }

// Guest has the facts about a guest with dedicated CPUs.
type Guest struct {
	VCPUs vcpus.List // with the threads' numbers on the node
	// Own is how many CPUs its pod has asked for.
	Own     int64
	Isolate bool
}

// Placement is the result of Place: the sorted CPUs of each virtual CPU's thread, and those of QEMU's other threads.
type Placement struct {
	Threads map[int][]int
	Others  []int
}

// Place gives each virtual CPU one of the container's CPUs. Threads of one core follow each other, so that the guest's
// siblings are siblings on the node, and the cores of which the container has most come first: a virtual CPU and QEMU's
// other threads share one only if there is no other way. If the guest isolates the other threads, they get the CPUs that are
// left, and otherwise all.
//
// With an error, all threads get all CPUs of the container. It has too few, or more than its pod has asked for. Then they
// are those that all containers of the node share, and two guests would have the same ones to themselves.
func Place(guest Guest, has []HostCPU) (Placement, error) {
	if err := guest.check(len(has)); err != nil {
		return Placement{Others: numbers(has)}, err
	}
	list := slices.Clone(guest.VCPUs)
	slices.SortFunc(list, func(a, b vcpus.VCPU) int { return cmp.Compare(a.Index, b.Index) })
	has = byCore(has)
	p := Placement{Threads: map[int][]int{}}
	for i, v := range list {
		p.Threads[v.Thread] = append(p.Threads[v.Thread], has[i].Number)
	}
	for _, cpus := range p.Threads {
		slices.Sort(cpus)
	}
	if guest.Isolate {
		has = has[len(list):]
	}
	p.Others = numbers(has)
	return p, nil
}

func (g *Guest) check(has int) error {
	need := len(g.VCPUs)
	if g.Isolate {
		need++
	}
	switch {
	case has < need:
		return fmt.Errorf("the pod has %d CPUs of its node, but the guest needs %d for itself: they are not pinned", has, need)
	case int64(has) > g.Own:
		return fmt.Errorf("the pod has %d CPUs of its node, but has asked for %d, so others use them, too: they are not pinned. "+
			"Check that the node's kubelet has cpuManagerPolicy: static, and restart or migrate the guest", has, g.Own)
	}
	return nil
}

// byCore sorts CPUs by the number of those on the same core, the most first, and then by their places.
func byCore(cpus []HostCPU) []HostCPU {
	type core struct{ pkg, number int }
	on := map[core]int{}
	for _, c := range cpus {
		on[core{c.Package, c.Core}]++
	}
	cpus = slices.Clone(cpus)
	slices.SortFunc(cpus, func(a, b HostCPU) int {
		return cmp.Or(cmp.Compare(on[core{b.Package, b.Core}], on[core{a.Package, a.Core}]),
			cmp.Compare(a.Package, b.Package), cmp.Compare(a.Core, b.Core), cmp.Compare(a.Number, b.Number))
	})
	return cpus
}

func numbers(cpus []HostCPU) []int {
	var list []int
	for _, c := range cpus {
		list = append(list, c.Number)
	}
	slices.Sort(list)
	return list
}

package machine

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	// odd is what an emulated guest gets more than whole mebibytes: QEMU loses track of what the
	// guest writes to a memory of whole 256 KiB while it migrates (decision 302). It is what QEMU
	// rounds to.
	odd = 8 * kibibyte
	// ramID names the guest's memory; a migration finds it by this name.
	ramID = "ram0"
)

// GuestMemory is the guest's memory at boot in bytes: spec.domain.memory.guest,
// else the memory request, else the memory limit; 0 when the VMI names none.
func GuestMemory(spec *v1.VirtualMachineInstanceSpec) int64 {
	if m := spec.Domain.Memory; m != nil && m.Guest != nil {
		return m.Guest.Value()
	}
	for _, list := range []corev1.ResourceList{spec.Domain.Resources.Requests, spec.Domain.Resources.Limits} {
		if q, ok := list[corev1.ResourceMemory]; ok {
			return q.Value()
		}
	}
	return 0
}

// memory gives the guest its RAM as a backend with a name of its own rather
// than by -m alone: that is what hugepages, hotplug and migration need.
func (b *builder) memory() {
	size := GuestMemory(&b.vmi.Spec)
	if size < mebibyte {
		b.refuse("memory.guest", "the guest needs at least 1Mi of memory")
		return
	}
	// QEMU wants whole pages; a guest never gets less than was asked for.
	size = (size + mebibyte - 1) / mebibyte * mebibyte
	hugepages := b.spec.Memory != nil && b.spec.Memory.Hugepages != nil
	if !b.in.KVM && !hugepages {
		size += odd
	}
	b.option("m", fmt.Sprintf("size=%dk", size/kibibyte))
	ram := Properties{"qom-type": "memory-backend-ram", "id": ramID, "size": size}
	if hugepages {
		ram["qom-type"] = "memory-backend-file"
		ram["mem-path"] = layout.HugepagesDir
		ram["share"] = false
		ram["prealloc"] = true
		ram["prealloc-threads"] = min(VCPUs(b.topology), 8)
	}
	b.object(ram)
}

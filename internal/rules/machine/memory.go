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

	// MemoryDevice is the id of the device by which a guest gets memory while it runs, and gives it back.
	MemoryDevice = "memory0"
	roomID       = "ram1"
	// MemoryBlock is what the device's memory is plugged in. It is the least that Linux gives back.
	MemoryBlock = 2 * mebibyte
	// linuxBlock is what Linux manages memory in on x86: what is in no whole one, it does not use.
	linuxBlock = 128 * mebibyte
	// DeviceMemory is what QEMU may lock beside the guest's memory when the guest has devices of the node: what such
	// a device reaches of the machine's other memory, as firmware and registers, is locked and mapped, too.
	DeviceMemory = 1 << 30
	// MostRoom is more than any machine has, and little enough to be counted with.
	MostRoom = 1 << 44
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

// BootMemory is the memory that the guest of a VMI was started with, in bytes; before that is said, what it is to be started with.
func BootMemory(vmi *v1.VirtualMachineInstance) int64 {
	if m := vmi.Status.Memory; m != nil && m.GuestAtBoot != nil {
		return m.GuestAtBoot.Value()
	}
	return GuestMemory(&vmi.Spec)
}

// memory gives the guest its RAM as a backend with a name of its own rather
// than by -m alone: that is what hugepages, hotplug and migration need.
func (b *builder) memory() {
	size := GuestMemory(&b.vmi.Spec)
	if b.in.Memory != 0 {
		size = b.in.Memory
	}
	if size < mebibyte {
		b.refuse("memory.guest", "the guest needs at least 1Mi of memory")
		return
	}
	room := roundUp(MemoryRoom(&b.vmi.Spec, size), linuxBlock)
	// QEMU wants whole pages; a guest never gets less than was asked for.
	size = roundUp(size, mebibyte)
	hugepages := b.spec.Memory != nil && b.spec.Memory.Hugepages != nil
	if !b.in.KVM && !hugepages {
		size += odd
	}
	if room == 0 {
		b.option("m", fmt.Sprintf("size=%dk", size/kibibyte))
	} else {
		b.option("m", fmt.Sprintf("size=%dk,maxmem=%dk", size/kibibyte, (size+room)/kibibyte))
	}
	ram := Properties{"qom-type": "memory-backend-ram", "id": ramID, "size": size}
	if hugepages {
		ram["qom-type"] = "memory-backend-file"
		ram["mem-path"] = layout.HugepagesDir
		ram["share"] = false
		ram["prealloc"] = true
		ram["prealloc-threads"] = min(VCPUs(b.topology), 8)
	}
	b.object(ram)
	if room > 0 {
		b.room(room)
	}
}

// room gives the guest an empty device with room for so much memory. The memory is neither allocated nor set aside
// before the guest uses it.
func (b *builder) room(size int64) {
	b.object(Properties{"qom-type": "memory-backend-ram", "id": roomID, "size": size, "reserve": false})
	b.device(onRootBus(Properties{
		"driver": "virtio-mem-pci", "id": MemoryDevice, "memdev": roomID, "block-size": MemoryBlock, "requested-size": 0,
	}, slotMemory))
}

// MemoryRoom is how much memory a guest of the spec that was started with so much can get while it runs, in bytes.
func MemoryRoom(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	m := spec.Domain.Memory
	if m == nil || m.MaxGuest == nil || m.Hugepages != nil {
		return 0
	}
	return min(max(m.MaxGuest.Value()-boot, 0), MostRoom) / MemoryBlock * MemoryBlock
}

// PluggedMemory is how much of its room a guest that was started with so much is to have for what the spec asks for.
func PluggedMemory(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	more := min(max(GuestMemory(spec)-boot, 0), MostRoom)
	return min(roundUp(more, MemoryBlock), MemoryRoom(spec, boot))
}

// LockedMemory is how much memory in bytes QEMU may have to lock for a guest of the spec that was started with so much: devices
// of the node write to all that the guest has, and may get, whenever they like.
func LockedMemory(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	return roundUp(boot, mebibyte) + odd + MemoryRoom(spec, boot) + DeviceMemory
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

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
	// odd is added to an emulated guest's memory: QEMU loses writes to a memory of whole 256 KiB during migration
	// (decision 302). QEMU rounds to it.
	odd = 8 * kibibyte
	// ramID is the name by which a migration finds the guest's memory.
	ramID = "ram0"

	// MemoryDevice is the id of the device that plugs memory.
	MemoryDevice = "memory0"
	roomID       = "ram1"
	// MemoryBlock is the device's block size, the smallest that Linux releases.
	MemoryBlock = 2 * mebibyte
	// linuxBlock is the block size of Linux on x86, which uses no partial block.
	linuxBlock = 128 * mebibyte
	// DeviceMemory is the memory besides the guest's, such as firmware and registers, that QEMU may lock if the guest
	// has devices of the node.
	DeviceMemory = 1 << 30
	// MostRoom is more than any machine has, and safe from overflow.
	MostRoom = 1 << 44
)

// GuestMemory returns the guest's boot memory in bytes: spec.domain.memory.guest, or else the memory request, or else
// the limit; 0 for none.
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

// BootMemory returns the memory in bytes with which the guest was or will be started.
func BootMemory(vmi *v1.VirtualMachineInstance) int64 {
	if m := vmi.Status.Memory; m != nil && m.GuestAtBoot != nil {
		return m.GuestAtBoot.Value()
	}
	return GuestMemory(&vmi.Spec)
}

// A named backend, instead of -m alone, is needed for hugepages, hotplug and migration.
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
	// QEMU requires whole pages; a guest never gets less than requested.
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
	ram := b.backend(ramID, size)
	if hugepages {
		ram["qom-type"] = "memory-backend-file"
		ram["mem-path"] = layout.HugepagesDir
		ram["share"] = HasShares(&b.vmi.Spec)
		ram["prealloc"] = true
		ram["prealloc-threads"] = min(VCPUs(b.topology), 8)
	}
	b.object(ram)
	if room > 0 {
		b.room(room)
	}
}

// backend returns anonymous memory, or memory that the programs of the guest's shares can map.
func (b *builder) backend(id string, size int64) Properties {
	if HasShares(&b.vmi.Spec) {
		return Properties{"qom-type": "memory-backend-memfd", "id": id, "size": size, "share": true}
	}
	return Properties{"qom-type": "memory-backend-ram", "id": id, "size": size}
}

// room adds an empty device, whose memory is neither allocated nor reserved before the guest uses it.
func (b *builder) room(size int64) {
	ram := b.backend(roomID, size)
	ram["reserve"] = false
	b.object(ram)
	b.device(onRootBus(Properties{
		"driver": "virtio-mem-pci", "id": MemoryDevice, "memdev": roomID, "block-size": MemoryBlock, "requested-size": 0,
	}, slotMemory))
}

// MemoryRoom returns how many bytes can be plugged, besides boot bytes.
func MemoryRoom(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	m := spec.Domain.Memory
	if m == nil || m.MaxGuest == nil || m.Hugepages != nil {
		return 0
	}
	return min(max(m.MaxGuest.Value()-boot, 0), MostRoom) / MemoryBlock * MemoryBlock
}

// PluggedMemory returns how many bytes the spec wants plugged, besides boot bytes.
func PluggedMemory(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	more := min(max(GuestMemory(spec)-boot, 0), MostRoom)
	return min(roundUp(more, MemoryBlock), MemoryRoom(spec, boot))
}

// LockedMemory returns how many bytes QEMU may have to lock: devices of the node may write at any time to all memory
// that the guest has or may get.
func LockedMemory(spec *v1.VirtualMachineInstanceSpec, boot int64) int64 {
	return roundUp(boot, mebibyte) + odd + MemoryRoom(spec, boot) + DeviceMemory
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

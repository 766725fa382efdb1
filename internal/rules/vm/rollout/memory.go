package rollout

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

const memoryPath = templatePath + ".domain.memory.guest"

const (
	// leastWithRoom is the minimum memory of a guest that gets room by default: Linux reserves 64 MiB at boot if memory
	// above 4 GiB is possible (decision 397).
	leastWithRoom = 1 << 30
	// mostWithRoom bounds the room by default. A CPU model with only QEMU's own address bits can address 1 TiB, a part of
	// which QEMU uses for devices.
	mostWithRoom = 512 << 30
)

func prepareMemory(spec *v1.VirtualMachineInstanceSpec, limits clusterconfig.LiveUpdate) {
	m, guest := spec.Domain.Memory, machine.GuestMemory(spec)
	if fixedMemory(spec) != "" || m == nil || m.MaxGuest != nil || guest < leastWithRoom {
		return
	}
	room := limits.MaxGuest
	if room == 0 {
		room = min(guest, mostWithRoom) * min(int64(limits.MaxHotplugRatio), mostWithRoom/leastWithRoom) // the product can't overflow
	}
	if room = min(room, mostWithRoom); room > guest {
		m.MaxGuest = resource.NewQuantity(room, resource.BinarySI)
	}
}

// A template that sets memory by its resources alone changes those.
func memoryChanges(in Input) []Change {
	if !namesMemory(in.Template) && (in.Started == nil || !namesMemory(in.Started)) {
		return nil
	}
	if machine.GuestMemory(in.Template) == machine.GuestMemory(&in.VMI.Spec) {
		return nil
	}
	return []Change{liveUnless(memoryHindrance(in.Strategy, in.VMI, in.Template), memoryPath, ReasonMemory)}
}

func namesMemory(spec *v1.VirtualMachineInstanceSpec) bool {
	return spec.Domain.Memory != nil && spec.Domain.Memory.Guest != nil
}

func copyMemory(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	wanted := machine.GuestMemory(template)
	if wanted == machine.GuestMemory(&vmi.Spec) || memoryHindrance(strategy, vmi, template) != "" {
		return false
	}
	vmi.Spec.Domain.Memory.Guest = resource.NewQuantity(wanted, resource.BinarySI)
	return true
}

func memoryHindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) string {
	if why := fixedHindrance(strategy, vmi, template, fixedMemory); why != "" {
		return why
	}
	boot := machine.BootMemory(vmi)
	switch more := machine.GuestMemory(template) - boot; {
	case more < 0:
		return ReasonBootMemory
	case more > machine.MemoryRoom(&vmi.Spec, boot):
		return ReasonNoMemory
	case more%machine.MemoryBlock != 0:
		return ReasonMemoryBlock
	}
	return ""
}

// fixedMemory returns why a guest keeps its initial memory, "" if it does not.
func fixedMemory(spec *v1.VirtualMachineInstanceSpec) string {
	switch m := spec.Domain.Memory; {
	case m != nil && m.Hugepages != nil:
		return ReasonHugepages
	case pinned(spec):
		return ReasonPinned
	case namesResource(spec, corev1.ResourceMemory):
		return ReasonNamedMemory
	}
	return ""
}

const sameRequest = 1 << 20

// Requests that differ by less than a millionth are the same: releases round the request for overcommitted memory
// differently, for which no guest must restart.
func levelMemoryRequest(from, to *v1.VirtualMachineInstanceSpec) {
	before, after := from.Domain.Resources.Requests, to.Domain.Resources.Requests
	was, requested := before[corev1.ResourceMemory]
	is, requests := after[corev1.ResourceMemory]
	if !requested || !requests {
		return
	}
	if difference := was.Value() - is.Value(); max(difference, -difference) <= was.Value()/sameRequest {
		before[corev1.ResourceMemory] = is
	}
}

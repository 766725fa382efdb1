package rollout

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

const memoryPath = templatePath + ".domain.memory.guest"

const (
	// leastWithRoom is the least memory of a guest that gets room without having asked for it: Linux sets 64 MiB
	// aside at its start where there may be memory above 4 GiB some day (decision 397).
	leastWithRoom = 1 << 30
	// mostWithRoom is how far such room goes. A CPU model without more addresses than QEMU's own has them for 1 TiB,
	// of which QEMU takes a part for devices.
	mostWithRoom = 512 << 30
)

// prepareMemory gives the spec of a VMI that is made from a template room for more memory.
func prepareMemory(spec *v1.VirtualMachineInstanceSpec, limits clusterconfig.LiveUpdate) {
	m, guest := spec.Domain.Memory, machine.GuestMemory(spec)
	if fixedMemory(spec) != "" || m == nil || m.MaxGuest != nil || guest < leastWithRoom {
		return
	}
	room := limits.MaxGuest
	if room == 0 {
		room = min(guest, mostWithRoom) * min(int64(limits.MaxHotplugRatio), mostWithRoom/leastWithRoom) // which can be counted
	}
	if room = min(room, mostWithRoom); room > guest {
		m.MaxGuest = resource.NewQuantity(room, resource.BinarySI)
	}
}

// memoryChanges finds out whether the guest's memory is to be another one, and which way that reaches the guest. What
// a template says by its resources alone is a change of those.
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

// carryMemory gives a VMI the memory of its VM's template, and reports whether that is another one.
func carryMemory(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	wanted := machine.GuestMemory(template)
	if wanted == machine.GuestMemory(&vmi.Spec) || memoryHindrance(strategy, vmi, template) != "" {
		return false
	}
	vmi.Spec.Domain.Memory.Guest = resource.NewQuantity(wanted, resource.BinarySI)
	return true
}

// memoryHindrance is why the memory of a template reaches a VMI only by a restart, "" if it reaches it at once.
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

// fixedMemory is why a guest keeps the memory that it is started with, "" if it does not.
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

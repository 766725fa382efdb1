package guestlifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/podresize"
)

// Memory is the memory that a guest has beside what it was started with, in bytes, as QEMU says. The zero value is that of
// a guest of which nothing is known, or which has no room.
type Memory struct {
	Known bool
	// Requested is what the guest was given, Size what it has taken of that, or has not released yet.
	Requested, Size int64
}

// MemoryStep is what is to be done about a guest's memory.
type MemoryStep struct {
	// Given is what the VMI's status is to say that the guest is given, beside what it was started with: what it was, or what it
	// is about to be. It is said first: virt-controller takes nothing from the pod that the guest may take.
	Given int64
	// Set means that the guest is to be given To now.
	Set bool
	To  int64
}

// CanChangeMemory reports whether a guest has room for more memory than it was started with.
func CanChangeMemory(vmi *v1.VirtualMachineInstance) bool {
	return machine.MemoryRoom(&vmi.Spec, machine.BootMemory(vmi)) > 0
}

// DecideMemory decides what the guest is given. want are the resources that its pod is to have. Nothing is changed
// before the VMI says so (package podresize), nothing given that the pod does not have, and nothing changed in a guest that is
// stopped, which could not answer, or that migrates.
func DecideMemory(vmi *v1.VirtualMachineInstance, has Memory, runState string, pod *Pod, want corev1.ResourceRequirements) MemoryStep {
	step := MemoryStep{Given: has.Requested}
	if !has.Known || vmi.Status.Memory == nil || !podresize.MemoryAnnounced(vmi) || runState != runstate.Running || migration.InFlight(vmi) {
		return step
	}
	boot := machine.BootMemory(vmi)
	to := machine.PluggedMemory(&vmi.Spec, boot)
	switch said := vmi.Status.Memory.GuestRequested; {
	case to < has.Requested:
		step.Set, step.To = true, to
	case to > has.Requested && pod != nil && podresize.Granted(pod.Resources, want):
		step.Given = to
		if said != nil && said.Value() >= boot+to {
			step.Set, step.To = true, to
		}
	}
	return step
}

// memoryStatus is what the status says of the guest's memory; nil leaves what it says.
func memoryStatus(vmi *v1.VirtualMachineInstance, g *Guest) *v1.MemoryStatus {
	if vmi.Status.Memory == nil || !g.Memory.Known {
		return bootMemory(vmi)
	}
	boot := machine.BootMemory(vmi)
	quantity := func(more int64) *resource.Quantity { return resource.NewQuantity(boot+more, resource.BinarySI) }
	out := vmi.Status.Memory.DeepCopy()
	out.GuestAtBoot, out.GuestCurrent, out.GuestRequested = quantity(0), quantity(g.Memory.Size), quantity(g.MemoryGiven)
	return out
}

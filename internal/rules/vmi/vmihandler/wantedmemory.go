package vmihandler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/podresize"
)

// Memory is QEMU's report of plugged memory in bytes, besides the boot memory. The zero value is unknown or no room.
type Memory struct {
	Known     bool
	Requested int64 // the guest's limit
	Size      int64 // plugged, or not released yet
}

// MemoryStep is the next step of a change of memory.
type MemoryStep struct {
	// Given is the limit beside the boot memory, for the VMI's status. An increase is written before To is set: so
	// virt-controller never takes memory from the pod that the guest may use.
	Given int64
	Set   bool
	To    int64
}

// CanChangeMemory reports whether memory can be plugged.
func CanChangeMemory(vmi *v1.VirtualMachineInstance) bool {
	return machine.MemoryRoom(&vmi.Spec, machine.BootMemory(vmi)) > 0
}

// DecideMemory returns the next step. It waits while the guest is stopped or migrates, and while the pod has no room.
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

// LosesWrites reports whether the guest must be stopped before it is migrated: QEMU before 9.0 loses some writes of an
// emulated guest to a block of memory of whole 256 KiB, such as plugged memory (decisions 302 and 398).
func LosesWrites(kvm bool, has Memory) bool { return !kvm && (has.Requested > 0 || has.Size > 0) }

func memoryStatus(vmi *v1.VirtualMachineInstance, g *Guest) *v1.MemoryStatus {
	if vmi.Status.Memory == nil || !g.Memory.Known {
		size := machine.GuestMemory(&vmi.Spec)
		if size == 0 || vmi.Status.Memory != nil {
			return nil
		}
		guest := resource.NewQuantity(size, resource.BinarySI)
		return &v1.MemoryStatus{GuestAtBoot: guest, GuestCurrent: guest, GuestRequested: guest}
	}
	boot := machine.BootMemory(vmi)
	quantity := func(more int64) *resource.Quantity { return resource.NewQuantity(boot+more, resource.BinarySI) }
	out := vmi.Status.Memory.DeepCopy()
	out.GuestAtBoot, out.GuestCurrent, out.GuestRequested = quantity(0), quantity(g.Memory.Size), quantity(g.MemoryGiven)
	return out
}

package vmihandler

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/podresize"
)

// CanChangeCPUs reports whether virtual CPUs can be plugged.
func CanChangeCPUs(vmi *v1.VirtualMachineInstance) bool {
	cpu := vmi.Spec.Domain.CPU
	return cpu != nil && cpu.MaxSockets != 0
}

// WantedCPUs returns the number of virtual CPUs to change to, 0 for no change. want are the pod's wanted resources. It
// waits for the VMI's announcement (package podresize), for the pod's resources, and for a stopped guest, which could not
// respond.
func WantedCPUs(vmi *v1.VirtualMachineInstance, has int, runState string, kvm bool, pod *Pod, want corev1.ResourceRequirements) int {
	wanted := machine.VCPUs(machine.Topology(&vmi.Spec))
	switch {
	case has == 0, wanted == has, !CanChangeCPUs(vmi), !podresize.CPUsAnnounced(vmi), runState != runstate.Running, migration.InFlight(vmi):
		return 0
	case wanted < has && !kvm: // QEMU goes on using the memory of a CPU that it has emulated (decision 396)
		return 0
	case wanted > has && (pod == nil || !podresize.Granted(pod.Resources, want)):
		return 0
	}
	return wanted
}

// A socket counts from the plugging of its last CPU to the unplugging of its last CPU.
func topology(vmi *v1.VirtualMachineInstance, has int) *v1.CPUTopology {
	t := machine.Topology(&vmi.Spec)
	switch each := int(t.Cores) * int(t.Threads); {
	case has == 0 && CanChangeCPUs(vmi) && vmi.Status.CurrentCPUTopology != nil:
		return vmi.Status.CurrentCPUTopology // nothing newer is known
	case has > machine.VCPUs(t):
		t.Sockets = uint32((has + each - 1) / each)
	case has > 0:
		t.Sockets = uint32(max(has/each, 1))
	}
	return &t
}

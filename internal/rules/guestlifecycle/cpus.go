package guestlifecycle

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/podresize"
)

// CanChangeCPUs reports whether a guest has room for more virtual CPUs than it is started with.
func CanChangeCPUs(vmi *v1.VirtualMachineInstance) bool {
	cpu := vmi.Spec.Domain.CPU
	return cpu != nil && cpu.MaxSockets != 0
}

// WantedCPUs is how many virtual CPUs the guest is to be given now, or asked to go down to; 0 if it keeps those
// that it has. want are the resources that its pod is to have. Nothing is changed before the VMI says so
// (package podresize), nothing plugged that the pod does not have, and nothing changed in a guest that
// is stopped, which could not answer, or that migrates. Nothing is unplugged from a guest that is emulated.
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

// topology is the guest's, of which QEMU says that it has so many virtual CPUs. A socket counts that is on its way
// out, and one that is on its way in does not.
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

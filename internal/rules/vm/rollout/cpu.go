package rollout

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const socketsPath = templatePath + ".domain.cpu.sockets"

func prepareSockets(spec *v1.VirtualMachineInstanceSpec, limits clusterconfig.LiveUpdate) {
	cpu := spec.Domain.CPU
	if fixedSockets(spec) != "" || cpu != nil && cpu.MaxSockets != 0 {
		return
	}
	t := machine.Topology(spec)
	room := uint64(t.Sockets) * uint64(limits.MaxHotplugRatio)
	if limits.MaxCPUSockets != 0 {
		room = uint64(limits.MaxCPUSockets)
	}
	room = max(min(room, machine.MaxVCPUs/(uint64(t.Cores)*uint64(t.Threads))), uint64(t.Sockets))
	if cpu == nil {
		cpu = &v1.CPU{}
		spec.Domain.CPU = cpu
	}
	cpu.MaxSockets = uint32(room)
}

func socketChanges(in Input) []Change {
	wanted := machine.Topology(in.Template).Sockets
	if wanted == machine.Topology(&in.VMI.Spec).Sockets {
		return nil
	}
	return []Change{liveUnless(socketsHindrance(in.Strategy, in.VMI, in.Template), socketsPath, ReasonCPUs)}
}

func copySockets(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	wanted := machine.Topology(template).Sockets
	if wanted == machine.Topology(&vmi.Spec).Sockets || socketsHindrance(strategy, vmi, template) != "" {
		return false
	}
	vmi.Spec.Domain.CPU.Sockets = wanted
	return true
}

func socketsHindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) string {
	if why := fixedHindrance(strategy, vmi, template, fixedSockets); why != "" {
		return why
	}
	wanted := machine.Topology(template).Sockets
	if cpu := vmi.Spec.Domain.CPU; cpu == nil || cpu.MaxSockets < wanted {
		return ReasonNoSocket
	}
	has := vmi.Status.CurrentCPUTopology
	if kvm, _ := vmistatus.RunsWithKVM(vmi); has != nil && wanted < has.Sockets && !kvm {
		return ReasonEmulated
	}
	return ""
}

// fixedSockets returns why a guest keeps its initial sockets, "" if it does not.
func fixedSockets(spec *v1.VirtualMachineInstanceSpec) string {
	devices := &spec.Domain.Devices
	switch {
	case pinned(spec):
		return ReasonPinned
	case isTrue(devices.NetworkInterfaceMultiQueue), isTrue(devices.BlockMultiQueue):
		return ReasonQueues
	case namesResource(spec, corev1.ResourceCPU):
		return ReasonNamedCPU
	}
	return ""
}

func pinned(spec *v1.VirtualMachineInstanceSpec) bool {
	cpu := spec.Domain.CPU
	return cpu != nil && (cpu.DedicatedCPUPlacement || cpu.NUMA != nil || cpu.Realtime != nil)
}

func namesResource(spec *v1.VirtualMachineInstanceSpec, name corev1.ResourceName) bool {
	for _, list := range []corev1.ResourceList{spec.Domain.Resources.Requests, spec.Domain.Resources.Limits} {
		if _, named := list[name]; named {
			return true
		}
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }

package rollout

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

const socketsPath = templatePath + ".domain.cpu.sockets"

// prepareSockets gives the spec of a VMI that is made from a template room for more sockets.
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

// socketChanges finds out whether the number of sockets is another one, and which way it reaches the guest.
func socketChanges(in Input) []Change {
	wanted := machine.Topology(in.Template).Sockets
	if wanted == machine.Topology(&in.VMI.Spec).Sockets {
		return nil
	}
	return []Change{liveUnless(socketsHindrance(in.Strategy, in.VMI, in.Template), socketsPath, ReasonCPUs)}
}

// carrySockets gives a VMI the sockets of its VM's template, and reports whether those are others.
func carrySockets(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	wanted := machine.Topology(template).Sockets
	if wanted == machine.Topology(&vmi.Spec).Sockets || socketsHindrance(strategy, vmi, template) != "" {
		return false
	}
	vmi.Spec.Domain.CPU.Sockets = wanted
	return true
}

// socketsHindrance is why the sockets of a template reach a VMI only by a restart, "" if they reach it at once.
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

// fixedSockets is why a guest keeps the sockets that it is started with, "" if it does not.
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

// pinned reports whether a guest has CPUs of its own, or a NUMA topology.
func pinned(spec *v1.VirtualMachineInstanceSpec) bool {
	cpu := spec.Domain.CPU
	return cpu != nil && (cpu.DedicatedCPUPlacement || cpu.NUMA != nil || cpu.Realtime != nil)
}

// namesResource reports whether a spec says how much of something its pod gets.
func namesResource(spec *v1.VirtualMachineInstanceSpec, name corev1.ResourceName) bool {
	for _, list := range []corev1.ResourceList{spec.Domain.Resources.Requests, spec.Domain.Resources.Limits} {
		if _, named := list[name]; named {
			return true
		}
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }

package guestlifecycle

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Facts are what a status is made of: what is so, from whoever knows it.
type Facts struct {
	// Node is this node's name.
	Node string
	// Exit says how QEMU ended; nil while it has not.
	Exit *launch.Exit
	// Disruption is what the launcher pod says of why it is ended.
	Disruption vmistatus.Disruption
	// Lost means that the guest ran and does not any more, and that nobody
	// knows how it ended.
	Lost bool
	// Vanished means that the launcher pod was deleted by force, and that nothing
	// of it is left on the node: nobody knows how the guest ended.
	Vanished bool
	// Guest is the guest that runs; nil while none does or none is known.
	Guest *Guest
	// PodReady is the kubelet's opinion of the launcher pod.
	PodReady bool
	// PodInterrupted means that what Ready says is virt-controller's.
	PodInterrupted bool
	// Source is what is known of a migration that the guest leaves the node with, Target of one
	// that brings it here; nil for nothing.
	Source *vmistatus.SourceMigration
	Target *vmistatus.TargetMigration
	// Failure is why the last step failed; nil when it did not.
	Failure error
	Now     time.Time
}

// Guest is what is known of a running guest.
type Guest struct {
	// RunState is QEMU's (query-status).
	RunState string
	// Stalled means that an I/O error has stopped the guest, or had until a moment
	// ago; FailedDisks are the disks that it was on, as far as they are known.
	Stalled     bool
	FailedDisks []FailedDisk
	// PausedByUser means that the guest is to stay stopped even if the disks work
	// again.
	PausedByUser bool
	// VCPUs is how many virtual CPUs the guest has, 0 if QEMU has not said.
	VCPUs int
	// Memory is what the guest has beside what it was started with, MemoryGiven what the status says that it is given
	// (MemoryStep).
	Memory      Memory
	MemoryGiven int64
	// Halt is set while the guest's CPUs have not been started, because they wait
	// for volumes.
	Halt *Halt
	// MachineType is what QEMU's machine is.
	MachineType string
	// KVM means that QEMU runs the guest with KVM, and does not emulate it.
	KVM bool
	// SELinuxContext is the launcher's, empty on a node without SELinux.
	SELinuxContext string
	Interfaces     []Interface
	Volumes        map[string]Volume
	// Plugged is what is known of the hotplugged volumes.
	Plugged map[string]Plugged
	// Agent is what the guest agent told; nil while it is not connected.
	Agent *Agent
	// Credentials tells whether the agent has set the guest's access credentials; nil while nobody has tried.
	Credentials *Credentials
	// Frozen means that a user has had the agent freeze the guest's file systems.
	Frozen bool
}

// Interface is one of the guest's interfaces as virt-handler made it.
type Interface struct {
	Name, MAC, PodInterface string
	IPs                     []string
	Queues                  int
	// Link is the state of its link, "" while it is not known.
	Link v1.InterfaceState
	// Multus means that it is on another network than the pods'.
	Multus bool
	// Stays is why it keeps the guest on its node, "" if it does not.
	Stays string
}

// Volume is what is known of the disk behind a volume.
type Volume struct {
	// Size is the disk's size in bytes when its QEMU was started, 0 when it is not known. Grown is what the
	// guest was told since, 0 for nothing.
	Size, Grown int64
	// Claim is the PersistentVolumeClaim's own information, nil without one.
	Claim *v1.PersistentVolumeClaimInfo
}

// Plugged is what is known of a hotplugged volume.
type Plugged struct {
	// Phase is empty when virt-handler has nothing to say of it.
	Phase           v1.VolumePhase
	Reason, Message string
	// PodName and PodUID are the attachment pod that serves it.
	PodName string
	PodUID  types.UID
	Size    int64
}

// Credentials is how it went when the guest agent was to set access credentials. Failure is empty when it has.
type Credentials struct{ Failure string }

// Status is the status that the VMI should have, as virt-handler on the node knows it.
func Status(vmi *v1.VirtualMachineInstance, f Facts) v1.VirtualMachineInstanceStatus {
	facts := vmistatus.Facts{Now: f.Now, Failure: vmistatus.Known(""), End: endOf(vmi, f)}
	if f.Failure != nil {
		facts.Failure = vmistatus.Known(f.Failure.Error())
	}
	if f.PodInterrupted {
		facts.Pod = vmistatus.Known(vmistatus.Pod{State: vmistatus.PodReportedByController})
	}
	if f.Source != nil {
		facts.Source = vmistatus.Known(*f.Source)
	}
	if f.Target != nil {
		facts.Target = vmistatus.Known(*f.Target)
	}
	if f.Guest != nil {
		facts.Guest = vmistatus.Known(describe(vmi, f.Guest, f.PodReady))
	}
	return vmistatus.Project(vmi, vmistatus.HandlerOn(f.Node, &vmi.Status), facts)
}

// endOf is how the VMI ends, nil if it does not.
func endOf(vmi *v1.VirtualMachineInstance, f Facts) *vmistatus.End {
	switch {
	case f.Exit != nil:
		return vmistatus.EndOfQEMU(vmi, *f.Exit, f.Disruption)
	case f.Lost:
		return vmistatus.EndOfGuestLost()
	case f.Vanished:
		return vmistatus.EndOfPodGone()
	}
	return nil
}

// describe is what a status says of a guest that runs.
func describe(vmi *v1.VirtualMachineInstance, g *Guest, podReady bool) vmistatus.Guest {
	list := volumes(vmi, vmi.Status.VolumeStatus, g)
	known := knownClaims(list, g.Volumes)
	held := hindrancesOf(vmi, list, known, g.Interfaces)
	out := vmistatus.Guest{
		RunState: g.runState(list), PausedByUser: g.PausedByUser,
		AwaitsProbe:    vmi.Spec.ReadinessProbe != nil && !podReady,
		AgentConnected: g.Agent != nil,
		AgentLacks:     agentLacks(vmi, g.Agent),
		Accelerated:    g.KVM,
		Immovable:      held.all(),
		StorageBound:   held.storage(),
		Details: vmistatus.Details{
			Memory: memoryStatus(vmi, g), CPUTopology: topology(vmi, g.VCPUs), SELinuxContext: g.SELinuxContext,
			Interfaces: interfaces(vmi, g), Volumes: list, MigrationMethod: migrationMethod(vmi, list, known),
			MigrationTransport: v1.MigrationTransportUnix, Frozen: g.Frozen,
		},
	}
	if g.MachineType != "" {
		out.Details.Machine = &v1.Machine{Type: g.MachineType}
	}
	if g.Agent != nil {
		out.Details.OS = g.Agent.OS
	}
	if g.Credentials != nil {
		out.Credentials = vmistatus.Known(g.Credentials.Failure)
	}
	return out
}

// bootMemory is the guest's memory when it starts; nil when it is not known, or has
// been said.
func bootMemory(vmi *v1.VirtualMachineInstance) *v1.MemoryStatus {
	size := machine.GuestMemory(&vmi.Spec)
	if size == 0 || vmi.Status.Memory != nil {
		return nil
	}
	guest := resource.NewQuantity(size, resource.BinarySI)
	return &v1.MemoryStatus{GuestAtBoot: guest, GuestCurrent: guest, GuestRequested: guest}
}

// runState is the run state that the VMI tells of.
func (g *Guest) runState(list []v1.VolumeStatus) runstate.State {
	if g.Halt != nil {
		return g.Halt.state(list, g.PausedByUser)
	}
	if g.Stalled {
		state := runstate.Of(runstate.IOError)
		state.Message = stallMessage(g.FailedDisks, g.PausedByUser)
		return state
	}
	return runstate.Of(g.RunState)
}

package vmihandler

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Facts are the input of Status.
type Facts struct {
	Node           string
	Exit           *launch.Exit
	ExitedAt       time.Time
	Disruption     vmistatus.Disruption
	PodLasts       bool // the kubelet has yet to report the end of virt-launcher's container
	Lost           bool // a running guest has ended in an unknown way
	Vanished       bool // the pod was deleted by force without remains: the end is unknown
	Guest          *Guest
	PodReady       bool
	PodInterrupted bool // virt-controller owns the condition Ready
	Source         *vmistatus.SourceMigration
	Target         *vmistatus.TargetMigration
	Failure        error // of the last step
	Now            time.Time
}

// Guest is a running guest.
type Guest struct {
	RunState string
	// Stalled means that an I/O error has stopped the guest, until it has settled. FailedDisks may be incomplete.
	Stalled        bool
	FailedDisks    []FailedDisk
	PausedByUser   bool // stays stopped even if its disks work again
	VCPUs          int  // 0 until QEMU has reported the number
	Memory         Memory
	MemoryGiven    int64 // MemoryStep.Given
	Halt           *Halt // while the CPUs wait for volumes
	MachineType    string
	KVM            bool
	SELinuxContext string
	Interfaces     []Interface
	Links          map[string]v1.InterfaceState // that virt-handler has set, by interface
	Volumes        map[string]Volume
	Plugged        map[string]Plugged
	Agent          *Agent       // nil while not connected
	Credentials    *Credentials // nil until the agent was asked to set them
	Frozen         bool         // by a user
}

// Interface is one that virt-handler made.
type Interface struct {
	Name, MAC, PodInterface string
	IPs                     []string
	Queues                  int
	Link                    v1.InterfaceState // unless Guest.Links has it; "" while it is unknown
	Multus                  bool              // not on the pod network
	Stays                   string            // why it keeps the guest on its node, "" for none
}

// Volume is a volume's disk.
type Volume struct {
	Size, Grown int64 // in bytes: at QEMU's start, and after growth; 0 for none
	Claim       *v1.PersistentVolumeClaimInfo
}

// Plugged is a hotplugged volume.
type Plugged struct {
	Phase           v1.VolumePhase // "" when there is nothing to report
	Reason, Message string
	PodName         string
	PodUID          types.UID
	Size            int64
	Dump            *v1.DomainMemoryDumpInfo // of a memory dump's volume
}

// Credentials is the result of setting access credentials by the guest agent. Failure is "" on success.
type Credentials struct{ Failure string }

// Status returns the VMI's status according to the node's virt-handler.
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

// reasonPatience is how long a guest's end waits for its reason. The kubelet reports a pod's end within a few seconds, or
// after ten, when it synchronizes all statuses. A silent kubelet must not hide that the guest is gone.
const reasonPatience = 15 * time.Second

// ReasonAfter returns how long the status waits for the reason of a guest's end, 0 for not at all.
func ReasonAfter(vmi *v1.VirtualMachineInstance, f Facts) time.Duration {
	if !awaitsReason(vmi, f) {
		return 0
	}
	return max(0, f.ExitedAt.Add(reasonPatience).Sub(f.Now))
}

// awaitsReason reports whether the kubelet has yet to report why it has ended the guest.
func awaitsReason(vmi *v1.VirtualMachineInstance, f Facts) bool {
	return f.Exit != nil && f.PodLasts && vmistatus.Unexplained(vmi, *f.Exit, f.Disruption)
}

func endOf(vmi *v1.VirtualMachineInstance, f Facts) *vmistatus.End {
	switch {
	case ReasonAfter(vmi, f) > 0:
		return nil
	case awaitsReason(vmi, f):
		return vmistatus.EndOfQEMU(vmi, *f.Exit, vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded})
	case f.Exit != nil:
		return vmistatus.EndOfQEMU(vmi, *f.Exit, f.Disruption)
	case f.Lost:
		return vmistatus.EndOfGuestLost()
	case f.Vanished:
		return vmistatus.EndOfPodGone()
	}
	return nil
}

func describe(vmi *v1.VirtualMachineInstance, g *Guest, podReady bool) vmistatus.Guest {
	list := volumes(vmi, vmi.Status.VolumeStatus, g)
	known := withHotplugClaims(list, g.Volumes)
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

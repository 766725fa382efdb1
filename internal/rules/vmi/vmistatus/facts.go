package vmistatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
)

// Fact is a value that a writer may not know. The zero value is unknown.
type Fact[T any] struct {
	known bool
	value T
}

// Known returns a known fact.
func Known[T any](value T) Fact[T] { return Fact[T]{known: true, value: value} }

// Get returns the value, and whether it is known.
func (f Fact[T]) Get() (value T, known bool) { return f.value, f.known }

// Facts has a component's knowledge of a VMI. Unknown facts leave the status as it is.
type Facts struct {
	Now  time.Time
	Wait Wait
	// Maintain describes a VMI that has and must have no guest; nil for any other.
	Maintain *Maintain
	// HandOver is set in the write that hands the VMI over.
	HandOver *HandOver
	// Obstacle keeps the launcher pod from being created or from starting; nil for none.
	Obstacle Fact[*Obstacle]
	Pod      Fact[Pod]
	// Failure is the error of a failed step of virt-handler; "" for none.
	Failure Fact[string]
	Guest   Fact[Guest]
	// End is nil unless the VMI ends.
	End *End
	// Migration has virt-controller's facts, Source those of virt-handler on the guest's node, and
	// Target those of virt-handler on the target node.
	Migration Migration
	Volumes   Fact[Volumes]
	// MigrationRequired is the condition that package migrationrequired decided; nil for none.
	MigrationRequired Fact[*v1.VirtualMachineInstanceCondition]
	// VCPUs is the state of a change of the guest's CPUs, nil for none.
	VCPUs Fact[*Obstacle]
	// Memory is the state of a change of the guest's memory, nil for none.
	Memory Fact[*Obstacle]
	Source Fact[SourceMigration]
	Target Fact[TargetMigration]
}

// Obstacle is a problem that may not go away by itself.
type Obstacle struct{ Reason, Message string }

// Wait describes a VMI that has not been handed over to a node.
type Wait struct {
	// Phase is the phase to enter, "" to keep the current one.
	Phase v1.VirtualMachineInstancePhase
	// For is the reason to wait, "" if nothing new is known. An obstacle's message takes precedence.
	For         string
	DataVolumes Fact[DataVolumes]
	// Provisioning describes the binding of its claims, "" for none.
	Provisioning Fact[string]
	// Unscheduled is why its pod gets no node, nil for no known reason.
	Unscheduled Fact[*Obstacle]
}

// DataVolumes has the state of a VMI's DataVolumes. The zero value is a VMI without any.
type DataVolumes struct {
	Exist, Filled bool
	Message       string
}

// Maintain describes a VMI that has and must have no guest for now.
type Maintain struct {
	// Locked means locked for a maintenance pod.
	Locked bool
	For    string
}

// HandOver is the pod with which a VMI is handed over to virt-handler on the pod's node.
type HandOver struct {
	Pod types.UID
	// Node is where the pod is bound; Created is the pod's creation time.
	Node    string
	Created time.Time
	Image   string
	User    uint64
	QOS     corev1.PodQOSClass
}

// PodState is a launcher pod's state.
type PodState int

// The states.
const (
	// PodThere means that no problem is known.
	PodThere PodState = iota
	PodTerminating
	// PodGone means that the object does not exist any more; the guest may still run.
	PodGone
	// PodSilent means that the pod runs on a node that does not answer.
	PodSilent
	// PodUnseen means that the pod's node does not answer and has not reported whether it started the container.
	PodUnseen
	// PodReportedByController means that the pod is being deleted, or that Kubernetes has marked
	// its node as lost. virt-controller, which can read the node, sets Ready.
	PodReportedByController
)

// Pod is a launcher pod after the handover.
type Pod struct {
	State PodState
	Name  string
	// Node is the pod's node. Silent is why that does not answer; "" if it does.
	Node, Silent string
	// Since is when the pod was found to be gone.
	Since time.Time
}

// Guest is a running guest.
type Guest struct {
	// RunState follows from QEMU's run state; PausedByUser overrides its reason.
	RunState     runstate.State
	PausedByUser bool
	// AwaitsProbe means that the guest has a readiness probe that has not succeeded.
	AwaitsProbe    bool
	AgentConnected bool
	// AgentLacks lists required commands that the agent lacks, "" for none. It is unknown until the
	// agent has listed its commands.
	AgentLacks Fact[string]
	// Credentials is why the agent has not set the guest's access credentials, "" if it has. It is
	// unknown until somebody has tried.
	Credentials Fact[string]
	// Accelerated means that the guest runs with KVM and is not emulated.
	Accelerated bool
	// Immovable is why the guest can't migrate, nil if it can.
	Immovable *Obstacle
	// StorageBound is why the guest can't migrate even if its disks are copied to other claims, nil if it can.
	StorageBound *Obstacle
	Details      Details
}

// Details describe a running guest.
type Details struct {
	// Machine and Memory leave the status as it is if they are nil.
	Machine            *v1.Machine
	Memory             *v1.MemoryStatus
	CPUTopology        *v1.CPUTopology
	SELinuxContext     string
	Interfaces         []v1.VirtualMachineInstanceNetworkInterface
	Volumes            []v1.VolumeStatus
	MigrationMethod    v1.VirtualMachineInstanceMigrationMethod
	MigrationTransport v1.VirtualMachineInstanceMigrationTransport
	OS                 v1.VirtualMachineInstanceGuestOSInfo
	// Frozen means that a user has frozen the guest's file systems.
	Frozen bool
}

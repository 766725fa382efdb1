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

// Facts are a component's knowledge of a VMI. Unknown facts leave the status as it is.
type Facts struct {
	Now      time.Time
	Wait     Wait
	Maintain *Maintain
	HandOver *HandOver
	// Obstacle keeps the launcher pod from being created or from starting.
	Obstacle Fact[*Obstacle]
	Pod      Fact[Pod]
	Failure  Fact[string]
	Guest    Fact[Guest]
	End      *End
	// Migration is from virt-controller, Source and Target from the virt-handlers.
	Migration         Migration
	Volumes           Fact[Volumes]
	MigrationRequired Fact[*v1.VirtualMachineInstanceCondition]
	VCPUs             Fact[*Obstacle]
	Memory            Fact[*Obstacle]
	Source            Fact[SourceMigration]
	Target            Fact[TargetMigration]
}

// Obstacle is a problem that may not go away by itself.
type Obstacle struct{ Reason, Message string }

// Wait describes a VMI before the handover.
type Wait struct {
	Phase        v1.VirtualMachineInstancePhase // to enter; "" keeps the current one
	For          string                         // "" if nothing new is known; an obstacle's message takes precedence
	DataVolumes  Fact[DataVolumes]
	Provisioning Fact[string]
	Unscheduled  Fact[*Obstacle]
}

// DataVolumes is the state of a VMI's DataVolumes. The zero value is for none.
type DataVolumes struct {
	Exist, Filled bool
	Message       string
}

// Maintain describes a VMI that has and must have no guest.
type Maintain struct {
	Locked bool // for a maintenance pod
	For    string
}

// HandOver is the pod with which a VMI is handed over to virt-handler.
type HandOver struct {
	Pod     types.UID
	Node    string
	Created time.Time
	Image   string
	User    uint64
	QOS     corev1.PodQOSClass
}

// PodState is a launcher pod's state; PodThere has no known problem.
type PodState int

// The states.
const (
	PodThere PodState = iota
	PodTerminating
	PodGone // the object is gone; the guest may still run
	PodSilent
	PodUnseen // the node does not answer, and has not reported whether it started the container
	// PodReportedByController: the pod is being deleted, or Kubernetes has marked its node as lost. virt-controller sets
	// Ready, because it can read the node.
	PodReportedByController
)

// Pod is a launcher pod after the handover.
type Pod struct {
	State PodState
	Name  string
	// Silent is why the node does not answer.
	Node, Silent string
	Since        time.Time // found to be gone
}

// Guest is a running guest.
type Guest struct {
	RunState       runstate.State
	PausedByUser   bool // overrides RunState's reason
	AwaitsProbe    bool
	AgentConnected bool
	// AgentLacks is unknown until the agent has listed its commands.
	AgentLacks Fact[string]
	// Credentials is why the agent has not set them. It is unknown until a try.
	Credentials  Fact[string]
	Accelerated  bool
	Immovable    *Obstacle // why the guest can't migrate
	StorageBound *Obstacle // why not even if its disks are copied to other claims
	Details      Details
}

// Details describe a running guest. Nil Machine and Memory leave the status as it is.
type Details struct {
	Machine            *v1.Machine
	Memory             *v1.MemoryStatus
	CPUTopology        *v1.CPUTopology
	SELinuxContext     string
	Interfaces         []v1.VirtualMachineInstanceNetworkInterface
	Volumes            []v1.VolumeStatus
	MigrationMethod    v1.VirtualMachineInstanceMigrationMethod
	MigrationTransport v1.VirtualMachineInstanceMigrationTransport
	OS                 v1.VirtualMachineInstanceGuestOSInfo
	Frozen             bool
}

package vmistatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
)

// Fact is a value that whoever writes a status may not know. The zero value is not
// known.
type Fact[T any] struct {
	known bool
	value T
}

// Known returns the fact of a value.
func Known[T any](value T) Fact[T] { return Fact[T]{known: true, value: value} }

// Get returns the value, and whether it is known.
func (f Fact[T]) Get() (value T, known bool) { return f.value, f.known }

// Facts are what a component knows of a VMI at one moment. What it does not know is
// left as it is in the status.
type Facts struct {
	Now time.Time
	// Wait is what a VMI waits for that has not been handed over to a node.
	Wait Wait
	// Maintain is a VMI that has no guest and is to have none; nil for every other.
	Maintain *Maintain
	// HandOver is the pod that the VMI is handed over with, nil if it is not now.
	HandOver *HandOver
	// Obstacle is what keeps the launcher pod from being made or from starting; nil
	// for nothing.
	Obstacle Fact[*Obstacle]
	// Pod is what has become of the launcher pod since the VMI was handed over.
	Pod Fact[Pod]
	// Failure is why a step of virt-handler's fails; "" when none does.
	Failure Fact[string]
	// Guest is the guest that runs.
	Guest Fact[Guest]
	// End is how the VMI ends, nil if it does not.
	End *End
	// Migration is what virt-controller does about a migration, Source what virt-handler
	// on the guest's node knows of it, and Target what the one knows where it arrives.
	Migration Migration
	// Volumes are the volumes whose disks are to be copied to other claims.
	Volumes Fact[Volumes]
	// MigrationRequired is what the condition of that name is to be, as package migrationrequired
	// has decided; nil for none.
	MigrationRequired Fact[*v1.VirtualMachineInstanceCondition]
	// VCPUs is how far the change of a guest's CPUs is, nil for none.
	VCPUs Fact[*Obstacle]
	// Memory is how far the change of a guest's memory is, nil for none.
	Memory Fact[*Obstacle]
	Source Fact[SourceMigration]
	Target Fact[TargetMigration]
}

// Obstacle is something that may not go away by itself.
type Obstacle struct{ Reason, Message string }

// Wait is what a VMI waits for that has not been handed over to a node.
type Wait struct {
	// Phase is the one that it enters, "" for the one that it has.
	Phase v1.VirtualMachineInstancePhase
	// For says what it waits for; "" when nothing new is known. An obstacle's message
	// goes before.
	For string
	// DataVolumes is whether its DataVolumes are filled.
	DataVolumes Fact[DataVolumes]
	// Provisioning says what is being done to bind its claims, "" for nothing.
	Provisioning Fact[string]
	// Unscheduled is why its pod gets no node, nil when nothing speaks against one.
	Unscheduled Fact[*Obstacle]
}

// DataVolumes says whether a VMI's DataVolumes are filled. The zero value is a VMI
// that has none.
type DataVolumes struct {
	Exist, Filled bool
	// Message is what is said of them.
	Message string
}

// Maintain is what a VMI is that has no guest, and is to have none for now.
type Maintain struct {
	// Locked means that it is locked for a maintenance pod.
	Locked bool
	// For says what it waits for.
	For string
}

// HandOver is the pod that a VMI is handed over with to virt-handler on the pod's node.
type HandOver struct {
	Pod types.UID
	// Node is where the scheduler has bound the pod; Created when it was made.
	Node    string
	Created time.Time
	Image   string
	User    uint64
	QOS     corev1.PodQOSClass
}

// PodState is what has become of a launcher pod.
type PodState int

const (
	// PodThere is a pod of which nothing is known that speaks against it.
	PodThere PodState = iota
	// PodTerminating is a pod that is being deleted.
	PodTerminating
	// PodGone is a pod whose object does not exist any more; its guest may still run.
	PodGone
	// PodSilent is a pod that runs on a node that does not answer.
	PodSilent
	// PodUnseen is a pod whose node does not answer, and has not said whether it has
	// started the container.
	PodUnseen
	// PodReportedByController is a pod that is being deleted, or that Kubernetes has
	// marked as one of a node that does not answer. virt-controller, which can ask for
	// the node, says what Ready is.
	PodReportedByController
)

// Pod is the launcher pod of a VMI that has been handed over.
type Pod struct {
	State PodState
	Name  string
	// Node is the pod's, and Silent why that does not answer; "" when it does.
	Node, Silent string
	// Since is when the pod was found to be gone.
	Since time.Time
}

// Guest is what a guest that runs is, and does.
type Guest struct {
	// RunState is what QEMU's run state means; PausedByUser goes before its reason.
	RunState     runstate.State
	PausedByUser bool
	// AwaitsProbe means that the guest has a readiness probe that has not succeeded.
	AwaitsProbe bool
	// AgentConnected means that the guest agent answers.
	AgentConnected bool
	// AgentLacks says which commands the agent lacks that Drydock needs, "" for none. It is not known while the agent has not said.
	AgentLacks Fact[string]
	// Credentials is why its agent has not set the guest's access credentials, "" when it has. It is not known while nobody has tried.
	Credentials Fact[string]
	// Accelerated means that the guest runs with KVM; another one is emulated.
	Accelerated bool
	// Immovable is why the guest can't migrate, nil when it can.
	Immovable *Obstacle
	// StorageBound is why the guest can't migrate even if its disks are copied to other claims, nil when it can.
	StorageBound *Obstacle
	// Details are the fields of the status that describe it.
	Details Details
}

// Details are the fields of a status that describe a guest that runs.
type Details struct {
	// Machine, Memory: nil leaves what is said.
	Machine         *v1.Machine
	Memory          *v1.MemoryStatus
	CPUTopology     *v1.CPUTopology
	SELinuxContext  string
	Interfaces      []v1.VirtualMachineInstanceNetworkInterface
	Volumes         []v1.VolumeStatus
	MigrationMethod v1.VirtualMachineInstanceMigrationMethod
	// MigrationTransport is how QEMU sends the guest.
	MigrationTransport v1.VirtualMachineInstanceMigrationTransport
	OS                 v1.VirtualMachineInstanceGuestOSInfo
	// Frozen means that a user has had the guest's file systems frozen.
	Frozen bool
}

package vmistatus

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Writer is a component that writes the status.
type Writer string

// The writers. Nobody writes unused fields.
const (
	Nobody     Writer = ""
	API        Writer = "virt-api"
	Controller Writer = "virt-controller"
	Handler    Writer = "virt-handler"
	// TargetHandler is virt-handler on the node to which the guest migrates. Its pod and QEMU affect no phase or condition
	// yet.
	TargetHandler Writer = "virt-handler of the target"
)

// HandlerOn returns the role of the node's virt-handler.
func HandlerOn(node string, status *v1.VirtualMachineInstanceStatus) Writer {
	if m := status.MigrationState; m != nil && m.TargetNode == node && status.NodeName != node {
		return TargetHandler
	}
	return Handler
}

// Stage is a part of a VMI's life with the same owners.
type Stage int

const (
	// Waiting has no guest: virt-handler starts one only in phase Scheduled.
	Waiting Stage = iota
	// HandedOver may have a guest.
	HandedOver
	// Ended has a final phase.
	Ended
	stages
)

func (s Stage) String() string {
	return [...]string{"until Scheduled", "from Scheduled on", "Succeeded or Failed"}[s]
}

// StageOf returns a phase's stage. In an unknown phase a guest may run.
func StageOf(phase v1.VirtualMachineInstancePhase) Stage {
	switch phase {
	case v1.VmPhaseUnset, v1.Pending, lock.Phase, v1.Scheduling:
		return Waiting
	case v1.Succeeded, v1.Failed:
		return Ended
	}
	return HandedOver
}

// Owner has a field's writers during one stage.
type Owner struct {
	Owner Writer
	// Deputies write it if the owner can't. Every write requires that nobody else has written since the writer's read.
	Deputies []Writer
}

// Field is a field of a VMI's status, or a condition.
type Field struct {
	Name      string // in JSON, or a condition's type
	Condition bool
	Owners    [stages]Owner
	Deputizes string // when a deputy writes it
	// within restricts writers' changes by a term of the admission policy. A writer without one may always change the
	// field.
	within map[Writer]term
}

// term is an expression over the variables of the admission policy.
type term string

const (
	hasBegun term = "variables.begun"
	cleared  term = `variables.after.?evacuationNodeName.orValue("") == ""`
	arrives  term = "variables.begun && !variables.after.?migrationState.?failed.orValue(false)"
	// settled requires a failed migration without a pod on the target, or the VMI's end in this write.
	settled term = "variables.after.?migrationState.?failed.orValue(false) && (variables.ends || " +
		`!variables.after.?activePods.orValue({}).exists(uid, variables.after.activePods[uid] == variables.after.?migrationState.?targetNode.orValue("")))`
	notBegun term = "!variables.begun || variables.ends"
)

var (
	// scheduling fields are set before the guest starts, and stay.
	scheduling = [stages]Owner{Waiting: {Owner: Controller}}
	// placing fields may change when the guest moves.
	placing = [stages]Owner{Waiting: {Owner: Controller}, HandedOver: {Owner: Controller}}
	// guests fields are only known on the node.
	guests = [stages]Owner{HandedOver: {Owner: Handler}}
	// shared fields pass to virt-handler at the handover, unless it can't report.
	shared = [stages]Owner{Waiting: {Owner: Controller}, HandedOver: {Owner: Handler, Deputies: []Writer{Controller}}}
	// ending fields change with the VMI's end.
	ending = [stages]Owner{HandedOver: {Owner: Handler, Deputies: []Writer{Controller}}}
	// moving fields are virt-controller's once the guest may run.
	moving   = [stages]Owner{HandedOver: {Owner: Controller}}
	arriving = [stages]Owner{HandedOver: {Owner: TargetHandler}}
)

const (
	atItsEnd     = "the pod has ended or is gone"
	whileNoGuest = "the container does not start"
	beforeStart  = "the migration has not been begun, or the VMI ends with it"
)

const migrationState = "migrationState."

// whileBegun lets only the source's virt-handler report the failure of a begun migration, and nobody an arrival before the
// beginning.
var whileBegun = map[Writer]term{Controller: notBegun, TargetHandler: hasBegun}

// Fields has all fields of a VMI's status and migrationState, and all conditions that Drydock sets.
var Fields = []Field{
	{Name: "phase", Owners: shared, Deputizes: atItsEnd},
	{Name: "phaseTransitionTimestamps", Owners: shared, Deputizes: atItsEnd},
	{Name: "reason", Owners: shared, Deputizes: atItsEnd},
	{Name: "nodeName", Owners: placing},
	{Name: "activePods", Owners: placing},
	{Name: "launcherContainerImageVersion", Owners: placing},
	{Name: "qosClass", Owners: placing},
	{Name: "runtimeUser", Owners: scheduling},
	{Name: "interfaces", Owners: guests},
	{Name: "guestOSInfo", Owners: guests},
	{Name: "fsFreezeStatus", Owners: guests},
	{Name: "machine", Owners: guests},
	{Name: "currentCPUTopology", Owners: guests},
	{Name: "memory", Owners: guests},
	{Name: "migrationMethod", Owners: guests},
	{Name: "migrationTransport", Owners: guests},
	{Name: "selinuxContext", Owners: guests},
	{Name: "volumeStatus", Owners: shared, Deputizes: "the phases of hotplug that are virt-controller's, the sizes of claims, and the claims to which plugged disks were copied"},
	{Name: "conditions", Owners: shared, Deputizes: "see the conditions"},

	{Name: string(v1.VirtualMachineInstanceReady), Condition: true, Owners: shared,
		Deputizes: "the pod is being deleted, is gone or has ended, its node does not answer, or its container does not start"},
	{Name: string(v1.VirtualMachineInstanceSynchronized), Condition: true, Owners: shared, Deputizes: whileNoGuest},
	{Name: string(PodScheduled), Condition: true, Owners: scheduling},
	{Name: string(v1.VirtualMachineInstanceDataVolumesReady), Condition: true, Owners: scheduling},
	{Name: string(v1.VirtualMachineInstanceProvisioning), Condition: true, Owners: scheduling},
	{Name: string(v1.VirtualMachineInstancePaused), Condition: true, Owners: ending, Deputizes: atItsEnd},
	{Name: string(v1.VirtualMachineInstanceAgentConnected), Condition: true, Owners: ending, Deputizes: atItsEnd},
	{Name: string(v1.VirtualMachineInstanceUnsupportedAgent), Condition: true, Owners: ending, Deputizes: atItsEnd},
	{Name: string(v1.VirtualMachineInstanceAccessCredentialsSynchronized), Condition: true, Owners: ending, Deputizes: atItsEnd},
	{Name: string(v1.VirtualMachineInstanceIsMigratable), Condition: true, Owners: guests},
	{Name: string(v1.VirtualMachineInstanceIsStorageLiveMigratable), Condition: true, Owners: guests},
	{Name: string(Accelerated), Condition: true, Owners: guests},
	{Name: string(v1.VirtualMachineInstanceMigrationRequired), Condition: true, Owners: moving},
	{Name: string(MigrationProgress), Condition: true, Owners: ending, Deputizes: "to take it away with what ends the migration"},
	{Name: string(v1.VirtualMachineInstanceVolumesChange), Condition: true, Owners: moving},
	{Name: string(v1.VirtualMachineInstanceVCPUChange), Condition: true, Owners: moving},
	{Name: string(v1.VirtualMachineInstanceMemoryChange), Condition: true, Owners: moving},
	{Name: string(v1.VirtualMachineInstanceEvictionRequested), Condition: true, Deputizes: "it follows from evacuationNodeName",
		Owners: [stages]Owner{HandedOver: {Owner: Controller, Deputies: []Writer{Handler}}}},

	{Name: "migratedVolumes", Owners: moving},
	{Name: "evacuationNodeName", Deputizes: "to clear it", within: map[Writer]term{Controller: cleared},
		Owners: [stages]Owner{HandedOver: {Owner: API, Deputies: []Writer{Controller}}}},

	// virt-controller begins a migration, then each component writes its own facts. Another migration replaces all.
	{Name: migrationState + "migrationUid", Owners: moving},
	{Name: migrationState + "sourceNode", Owners: moving},
	{Name: migrationState + "sourcePod", Owners: moving},
	{Name: migrationState + "targetNode", Owners: moving},
	{Name: migrationState + "targetPod", Owners: moving},
	{Name: migrationState + "migrationPolicyName", Owners: moving},
	{Name: migrationState + "migrationConfiguration", Owners: moving},
	{Name: migrationState + "abortRequested", Owners: moving},
	{Name: migrationState + "startTimestamp", Owners: guests},
	{Name: migrationState + "mode", Owners: guests},
	{Name: migrationState + "failed", Owners: ending, Deputizes: beforeStart, within: whileBegun},
	{Name: migrationState + "failureReason", Owners: ending, Deputizes: beforeStart, within: whileBegun},
	{Name: migrationState + "abortStatus", Owners: ending, Deputizes: beforeStart, within: whileBegun},
	{Name: migrationState + "endTimestamp", Deputizes: "with completed and with failed", within: whileBegun,
		Owners: [stages]Owner{HandedOver: {Owner: Handler, Deputies: []Writer{TargetHandler, Controller}}}},
	{Name: migrationState + "targetNodeAddress", Owners: arriving},
	{Name: migrationState + "targetNodeDomainDetected", Owners: arriving, within: whileBegun},
	{Name: migrationState + "targetNodeDomainReadyTimestamp", Owners: arriving, within: whileBegun},
	{Name: migrationState + "completed", Deputizes: "of one that has failed, with the target pod's leave from activePods or the VMI's end",
		Owners: [stages]Owner{HandedOver: {Owner: TargetHandler, Deputies: []Writer{Controller, Handler}}},
		within: map[Writer]term{TargetHandler: arrives, Controller: settled, Handler: settled}},

	// Not in use.
	{Name: migrationState + "targetDirectMigrationNodePorts"},
	{Name: migrationState + "targetAttachmentPodUID"},
	{Name: migrationState + "targetCPUSet"},
	{Name: migrationState + "targetNodeTopology"},
	{Name: migrationState + "sourcePersistentStatePVCName"},
	{Name: migrationState + "targetPersistentStatePVCName"},
	{Name: migrationState + "sourceState"},
	{Name: migrationState + "targetState"},
	{Name: migrationState + "migrationNetworkType"},
	{Name: migrationState + "targetMemoryOverhead"},
	{Name: "kernelBootStatus"},
	{Name: "topologyHints"},
	{Name: "virtualMachineRevisionName"},
	{Name: "VSOCKCID"},
	{Name: "changedBlockTracking"},
}

// PodScheduled is copied from the pod while that has no node.
const PodScheduled = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)

// Accelerated is True for KVM, False for emulation, for the guest's life, on any node (decision 350).
const Accelerated v1.VirtualMachineInstanceConditionType = layout.Accelerated

// MayWrite reports whether the writer may change the field at a stage.
func (f *Field) MayWrite(by Writer, at Stage) bool {
	o := f.Owners[at]
	return by != Nobody && (o.Owner == by || slices.Contains(o.Deputies, by))
}

// Writable returns the status fields, without the conditions, that the writer may change in whole or in part.
func Writable(by Writer) []string {
	var names []string
	for i := range Fields {
		f := &Fields[i]
		name, _, _ := strings.Cut(f.Name, ".")
		if !f.Condition && !slices.Contains(names, name) &&
			slices.ContainsFunc([]Stage{Waiting, HandedOver, Ended}, func(s Stage) bool { return f.MayWrite(by, s) }) {
			names = append(names, name)
		}
	}
	return names
}

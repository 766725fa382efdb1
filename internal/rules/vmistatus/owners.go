package vmistatus

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Writer is a component that writes the status of VMIs.
type Writer string

const (
	// Nobody writes a field that is not in use.
	Nobody Writer = ""
	// API is virt-api, which answers evictions.
	API Writer = "virt-api"
	// Controller is virt-controller, which makes the pods.
	Controller Writer = "virt-controller"
	// Handler is virt-handler on the node that status.nodeName names, where the
	// guest runs.
	Handler Writer = "virt-handler"
	// TargetHandler is virt-handler on the node that the guest migrates to. Its pod
	// and its QEMU are not the guest's yet, and nothing that happens to them is in
	// the phase or in a condition.
	TargetHandler Writer = "virt-handler of the target"
)

// HandlerOn returns what virt-handler on a node is to the VMI.
func HandlerOn(node string, status *v1.VirtualMachineInstanceStatus) Writer {
	if m := status.MigrationState; m != nil && m.TargetNode == node && status.NodeName != node {
		return TargetHandler
	}
	return Handler
}

// Stage is a stretch of a VMI's life in which the owners of its fields stay the same.
type Stage int

const (
	// Waiting is the stage in which no guest can run: virt-handler starts one only in
	// phase Scheduled.
	Waiting Stage = iota
	// HandedOver is the stage in which a guest may run.
	HandedOver
	// Ended is the stage of a final phase.
	Ended
	stages
)

func (s Stage) String() string {
	return [...]string{"until Scheduled", "from Scheduled on", "Succeeded or Failed"}[s]
}

// StageOf returns the stage that a phase belongs to. A phase that is not known is
// one in which a guest may run.
func StageOf(phase v1.VirtualMachineInstancePhase) Stage {
	switch phase {
	case v1.VmPhaseUnset, v1.Pending, lock.Phase, v1.Scheduling:
		return Waiting
	case v1.Succeeded, v1.Failed:
		return Ended
	}
	return HandedOver
}

// Owner is who writes a field during one stage.
type Owner struct {
	Owner Writer
	// Deputies write it too, when the owner can't know or is away: Field.Deputizes
	// says when. All of them write on condition that nobody has written in between.
	Deputies []Writer
}

// Field is a field of a VMI's status, or a condition.
type Field struct {
	// Name is the field's in JSON. Condition is set for a condition, whose name is
	// its type then.
	Name      string
	Condition bool
	// Owners are the owners by stage.
	Owners [stages]Owner
	// Deputizes says when a deputy writes the field.
	Deputizes string
	// within is what the admission policy lets each writer's changes depend on; a
	// writer that is missing here may change the field at any time.
	within map[Writer]term
}

// term is an expression of the admission policy, over its variables.
type term string

const (
	// hasBegun is a migration that the source's virt-handler has begun.
	hasBegun term = "variables.begun"
	// cleared is a VMI that nobody evacuates after the write.
	cleared term = `variables.after.?evacuationNodeName.orValue("") == ""`
	// arrives is one that it has begun and that has not failed.
	arrives term = "variables.begun && !variables.after.?migrationState.?failed.orValue(false)"
	// settled is one that has failed and has no pod at the target any more, or whose VMI ends with the write.
	settled term = "variables.after.?migrationState.?failed.orValue(false) && (variables.ends || " +
		`!variables.after.?activePods.orValue({}).exists(uid, variables.after.activePods[uid] == variables.after.?migrationState.?targetNode.orValue("")))`
	// notBegun is a migration that it has not begun, or one whose VMI ends with the write.
	notBegun term = "!variables.begun || variables.ends"
)

var (
	// scheduling is what is known before the guest is, and stays as it is then.
	scheduling = [stages]Owner{Waiting: {Owner: Controller}}
	// placing may change when the guest moves.
	placing = [stages]Owner{Waiting: {Owner: Controller}, HandedOver: {Owner: Controller}}
	// guests are what only the node knows.
	guests = [stages]Owner{HandedOver: {Owner: Handler}}
	// shared are reported by virt-handler once it has the VMI, unless it can't.
	shared = [stages]Owner{Waiting: {Owner: Controller}, HandedOver: {Owner: Handler, Deputies: []Writer{Controller}}}
	// ending are virt-handler's, and go when the VMI ends.
	ending = [stages]Owner{HandedOver: {Owner: Handler, Deputies: []Writer{Controller}}}
	// moving is virt-controller's once the guest may run.
	moving = [stages]Owner{HandedOver: {Owner: Controller}}
	// arriving is known on the node that the guest migrates to.
	arriving = [stages]Owner{HandedOver: {Owner: TargetHandler}}
)

const (
	atItsEnd     = "the pod has ended or is gone"
	whileNoGuest = "the container does not start"
	beforeStart  = "the migration has not been begun, or the VMI ends with it"
)

// migrationState begins the names of the fields of that part of the status.
const migrationState = "migrationState."

// whileBegun lets nobody but the source's virt-handler say of a migration that has begun
// that it has failed, and nobody say before that the guest is at the target.
var whileBegun = map[Writer]term{Controller: notBegun, TargetHandler: hasBegun}

// Fields are all fields of a VMI's status, with those of its migrationState, and all
// conditions that Drydock sets.
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

	// A migration: virt-controller begins it, and then each of the three parts writes
	// what it alone knows. When another begins, virt-controller replaces all of it.
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

// PodScheduled is the pod's condition of that name, on the VMI while its pod has no
// node.
const PodScheduled = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)

// Accelerated is the condition that says whether the guest runs with KVM, or is emulated.
// It stays as it is for the guest's life, on whatever node (decision 350).
const Accelerated v1.VirtualMachineInstanceConditionType = "drydock.dev/Accelerated"

// MayWrite reports whether the writer may change the field at a stage.
func (f *Field) MayWrite(by Writer, at Stage) bool {
	o := f.Owners[at]
	return by != Nobody && (o.Owner == by || slices.Contains(o.Deputies, by))
}

// Writable returns the names of the fields of a status that the writer may change at some
// stage, in whole or in part, without the conditions and in the order of Fields.
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

// Package migration decides about live migrations: virt-controller's actions for one VirtualMachineInstanceMigration
// (plan.go), which waiting ones start (startqueue.go), which guests can migrate (eligibility.go), the configuration
// (policy.go), and which ended migrations are deleted (garbage.go).
//
// It must not import a client or read the clock. The virt-handlers decide the handover of guest and disks between the two
// QEMUs (package switchover), and report the result in the VMI's status.migrationState.
//
//	Pending ──> Scheduling ──> Scheduled ──> PreparingTarget ──> TargetReady ──> Running ──> Succeeded
//	  │            │               │               │                 │              │
//	 waits     target pod       its container   VMI handed over:   targetNode-    start-     completed, and
//	 for its   created          runs            migrationState     Address        Timestamp  the VMI's node
//	 turn                                       names this one                               switched
//
// From each of them a migration may become Failed; deleting it cancels it.
//
// Invariants:
//   - The phase never goes back, and a final phase never changes.
//   - No QEMU starts for a migration before one patch has written migrationState, and the target pod into activePods.
//     A target pod may be created twice before that, but not after.
//   - Before the source's virt-handler writes startTimestamp, virt-controller may end a migration by itself. Both patch
//     on condition of the VMI's resourceVersion: one of them wins. Afterwards virt-controller only requests an abort
//     (abortRequested), and the source's virt-handler reports the result.
//   - A target pod is deleted only when no guest can run in it: the API server's VMI (not a cache's) does not name it,
//     reports that the migration has failed, or has ended.
//   - The finalizer stays until the target pod is gone or has ended, or the guest runs in it.
package migration

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Observed is the input of a decision.
type Observed struct {
	Migration *v1.VirtualMachineInstanceMigration
	VMI       *v1.VirtualMachineInstance
	// VMIAsked means that VMI, even if nil, was read from the API server, and so do the other Asked fields.
	VMIAsked    bool
	Source      *corev1.Pod // the guest's, nil if none is known or there is no VMI
	SourceAsked bool
	Target      *corev1.Pod // with the name TargetName, nil if none is known
	TargetAsked bool
	TargetName  string
	// Refusal is the error of the last attempt to create the target pod. There is no new attempt.
	Refusal string
	// Choice is the result of Choose. It only counts before the target pod exists.
	Choice        Choice
	Configuration Configuration        // only for the handover
	Warning       *objectevent.Warning // the newest about the target pod
	WarningAsked  bool
	// Obstacle is why the attachment pods at the target do not run, "" if unknown.
	Obstacle          string
	ObstacleAsked     bool
	Destinations      []volumemigration.Destination
	DestinationsAsked bool
	Now               time.Time
}

// Question is a question that only the API server can answer.
type Question string

// The questions.
const (
	NeedVMI          Question = "the VMI"
	NeedSource       Question = "the pod that the guest runs in"
	NeedTarget       Question = "the target pod"
	NeedWarning      Question = "the target pod's events"
	NeedObstacle     Question = "the attachment pods at the target"
	NeedDestinations Question = "the claims that disks are copied to"
)

// Plan has actions in this order: create the target pod, patch the VMI, patch the migration's status, delete the target
// pod, patch the migration's finalizers. A failure ends the plan, and a new decision follows.
type Plan struct {
	// Needs must be answered first; then another plan is made.
	Needs Question
	// CreateTarget may be repeated: a second creation fails by the pod's name.
	CreateTarget bool
	// VMI is for one patch on condition of the VMI's resourceVersion. Zero means none.
	VMI Told
	// Migration has the desired status and finalizers; never nil. It shares the spec with the observed one.
	Migration    *v1.VirtualMachineInstanceMigration
	DeleteTarget bool          // on condition of the observed UID
	After        time.Duration // the requeue delay, zero for none
}

// Told has facts that package vmistatus applies to a VMI's status. Package vmicontroller removes the remains of a failed
// migration: the label and the pod in activePods.
type Told struct {
	// Begin hands the VMI over to the virt-handlers of both nodes; nil if not now. It replaces migrationState, adds the
	// target pod to activePods, and sets the label v1.MigrationTargetNodeNameLabel.
	Begin *Begin
	Abort bool // sets abortRequested
	// Failure is why the migration failed, "" for none. It must not be written once startTimestamp is.
	Failure string
}

// Begin has the VMI's facts at the handover.
type Begin struct {
	UID                   types.UID
	SourceNode, SourcePod string
	TargetNode, TargetPod string
	TargetPodUID          types.UID
	PolicyName            string
	Configuration         *v1.VMIMConfigurationOptions
}

type decision struct {
	o Observed
	p Plan
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{o: o}
	d.p.Migration = withoutItsSpec(o.Migration)
	for _, c := range checks {
		if c.applies(d) {
			c.then(d)
			break
		}
	}
	if d.p.Needs != "" {
		return Plan{Needs: d.p.Needs, Migration: withoutItsSpec(o.Migration)}
	}
	return d.p
}

// The first check that applies decides.
var checks = []struct {
	name    string
	applies func(*decision) bool
	then    func(*decision)
}{
	{"it has ended",
		func(d *decision) bool { return d.o.Migration.IsFinal() },
		(*decision).deleteRemains},
	{"the VMI is not shown",
		func(d *decision) bool { return d.o.VMI == nil && !d.o.VMIAsked },
		func(d *decision) { d.p.Needs = NeedVMI }},
	{"the VMI is gone",
		func(d *decision) bool { return d.o.VMI == nil },
		func(d *decision) { d.fail("the VMI %s does not exist (any more)", d.o.Migration.Spec.VMIName) }},
	{"the VMI has been handed over",
		(*decision).handedOver,
		(*decision).decideHandedOver},
	{"the VMI had been handed over, and names another migration",
		func(d *decision) bool { return d.o.Migration.TargetIsHandedOff() },
		(*decision).judgeReplaced},
	{"it is canceled before anything has begun",
		func(d *decision) bool { return d.o.Migration.DeletionTimestamp != nil },
		func(d *decision) { d.fail(canceled) }},
	{"it can't be done at all",
		func(d *decision) bool { return d.hindrance() != "" },
		func(d *decision) { d.fail("%s", d.hindrance()) }},
	{"the guest has not started yet",
		(*decision).awaitsStart,
		func(d *decision) {
			if !d.o.VMIAsked {
				d.p.Needs = NeedVMI // A cache may show an outdated phase.
				return
			}
			d.wait(ReasonStarting, "the guest has not started yet")
		}},
	{"another migration of the VMI is going on, and where the guest will be is not known",
		func(d *decision) bool { return InFlight(d.o.VMI) },
		func(d *decision) {
			d.wait(ReasonAnotherMigration, "another migration of the VMI has not ended yet")
		}},
	{"the pod that the guest runs in is not shown",
		func(d *decision) bool { return d.o.Source == nil && !d.o.SourceAsked },
		func(d *decision) { d.p.Needs = NeedSource }},
	{"the guest's pod ends",
		func(d *decision) bool { return sourceEnds(d.o.Source, d.o.VMI) != "" },
		func(d *decision) { d.fail("%s", sourceEnds(d.o.Source, d.o.VMI)) }},
	{"there is no target pod yet",
		func(d *decision) bool { return d.o.Target == nil && !d.o.Migration.TargetIsCreated() },
		(*decision).decideStart},
	{"there is a target pod",
		func(*decision) bool { return true },
		(*decision).awaitTarget},
}

// withoutItsSpec copies all but the spec, which is not this loop's.
func withoutItsSpec(m *v1.VirtualMachineInstanceMigration) *v1.VirtualMachineInstanceMigration {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	m.Status.DeepCopyInto(&out.Status)
	return &out
}

// state returns the VMI's migrationState, nil if it is not about this migration.
func (d *decision) state() *v1.VirtualMachineInstanceMigrationState {
	if d.o.VMI == nil || d.o.VMI.Status.MigrationState == nil || d.o.VMI.Status.MigrationState.MigrationUID != d.o.Migration.UID {
		return nil
	}
	return d.o.VMI.Status.MigrationState
}

func (d *decision) handedOver() bool { return d.state() != nil }

// hindrance returns why the migration is impossible, "" if it is or may become possible.
func (d *decision) hindrance() string {
	if m := d.o.Migration; m.Spec.SendTo != nil || m.Spec.Receive != nil {
		return NotBetweenClusters
	}
	judge := Movable
	if d.awaitsStart() {
		judge = MayMove
	}
	if err := judge(d.o.VMI); err != nil {
		return immovable + err.Error()
	}
	return ""
}

// awaitsStart reports whether the migration waits for the guest's start. One with a pod belongs to an earlier VMI of that
// name.
func (d *decision) awaitsStart() bool {
	return Starts(d.o.VMI) && d.o.Target == nil && !d.o.Migration.TargetIsCreated()
}

func sourceEnds(source *corev1.Pod, vmi *v1.VirtualMachineInstance) string {
	switch {
	case source == nil, launcherpod.BondOf(source, vmi) != launcherpod.Chosen:
		return "the launcher pod of the VMI is gone"
	case podstatus.Terminal(source):
		return "the launcher pod " + source.Name + " has ended, and the guest with it"
	case source.DeletionTimestamp != nil:
		return "the launcher pod " + source.Name + " is being deleted, and the guest ends with it"
	}
	return ""
}

func (d *decision) decideStart() {
	switch {
	case !d.ready():
	case d.o.Choice == Choice{}:
		// Choose has not seen the migration, or has seen an older version of its VMI.
		d.enter(v1.MigrationPending)
	case !d.o.Choice.May:
		d.wait(d.o.Choice.Reason, d.o.Choice.Message)
		d.p.After = d.o.Choice.After
	case !d.fits(false):
	case d.o.Refusal != "":
		d.enter(v1.MigrationPending)
		d.dropCondition(ConditionWaiting)
		d.setCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, reasonQuota, d.o.Refusal)
	default:
		d.clearWaiting()
		d.p.CreateTarget = true
		d.enter(v1.MigrationScheduling)
	}
}

// ready reports whether the VMI has one launcher pod and its volumes do not change, and waits if not.
func (d *decision) ready() bool {
	if len(d.o.VMI.Status.ActivePods) > 1 {
		d.wait(ReasonEarlierMigration, "the other launcher pod of the VMI's last migration has not ended yet")
		return false
	}
	if err := hotplug.AtRest(d.o.VMI); err != nil {
		d.wait(ReasonVolumes, err.Error())
		if d.o.Target != nil {
			d.expire(pendingLimit, "%s", err)
		}
		return false
	}
	return true
}

func (d *decision) decideHandedOver() {
	ms := d.state()
	switch {
	case switchover.Completed(ms):
		d.arrive()
	case ms.Failed:
		d.end(v1.MigrationFailed)
		d.deleteRemains()
	case d.o.VMI.IsFinal():
		d.fail("the VMI has ended: its phase is %s", d.o.VMI.Status.Phase)
	case d.silence() != "" && !d.o.VMIAsked:
		d.p.Needs = NeedVMI
	case d.silence() != "" && d.targetIsOut():
		// The guest stays at the silent source. Its virt-handler keeps migrationState, since only it knows whether the
		// guest stands still: no other migration begins until it is back.
		d.fail("%s (the guest has not run on node %s, and stays on node %s)", d.wholeReason(d.silence()), ms.TargetNode, ms.SourceNode)
	case d.asksForObstacle():
		d.p.Needs = NeedObstacle
	case d.stopsBecause() != "":
		d.stop(d.stopsBecause())
		d.awaitAnswer()
	case d.o.Target == nil && !d.o.TargetAsked:
		d.p.Needs = NeedTarget
	default:
		d.enter(phaseOf(ms))
		d.awaitVolumes()
		if ms.StartTimestamp == nil {
			d.requeueAt(d.preparedUntil())
		}
		d.awaitAnswer()
	}
}

// arrive ends the migration once the VMI's node is switched.
func (d *decision) arrive() {
	ms := d.state()
	if d.o.VMI.Status.NodeName != ms.TargetNode && !d.o.VMI.IsFinal() {
		// The VMI's loop switches its node (package vmicontroller), which enqueues this migration.
		d.enter(v1.MigrationRunning)
		return
	}
	d.end(v1.MigrationSucceeded)
	d.deleteRemains()
}

func phaseOf(ms *v1.VirtualMachineInstanceMigrationState) v1.VirtualMachineInstanceMigrationPhase {
	switch {
	case ms.StartTimestamp != nil:
		return v1.MigrationRunning
	case ms.TargetNodeAddress != "":
		return v1.MigrationTargetReady
	}
	return v1.MigrationPreparingTarget
}

func (d *decision) judgeReplaced() {
	if !d.o.VMIAsked {
		d.p.Needs = NeedVMI
		return
	}
	if ms := d.o.VMI.Status.MigrationState; ms != nil && ms.SourcePod == d.o.TargetName {
		// The guest has migrated on from this migration's target.
		d.end(v1.MigrationSucceeded)
		d.deleteRemains()
		return
	}
	d.fail("the VMI's status.migrationState does not name this migration any more")
}

func (d *decision) stopsBecause() string {
	o := &d.o
	switch {
	case o.Migration.DeletionTimestamp != nil:
		return canceled
	case o.VMI.DeletionTimestamp != nil:
		return "the VMI is being deleted"
	case volumemigration.Canceled(o.VMI):
		return "the VM does not want its volumes on other claims any more"
	case o.Target == nil && !o.TargetAsked:
		return ""
	case o.Target == nil || launcherpod.BondOf(o.Target, o.VMI) != launcherpod.Chosen:
		return "the target pod " + o.TargetName + " is gone"
	case podstatus.Terminal(o.Target):
		return targetEnded(o.VMI, o.Target)
	case o.Target.DeletionTimestamp != nil:
		return "the target pod " + o.TargetName + " is being deleted"
	}
	return cmp.Or(d.overdue(), d.silence())
}

// deleteRemains also removes the finalizer in the end.
func (d *decision) deleteRemains() {
	o, ms := &d.o, d.state()
	if switchover.Open(ms) && !o.VMI.IsFinal() && !d.targetIsOut() {
		// A former leader with an old view has handed over since.
		d.stop("the migration had ended before the VMI was handed over")
		return
	}
	switch {
	case !slices.Contains(o.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer):
		// Its remains are gone, or somebody removed the finalizer.
		d.deleteTarget()
	case d.p.Migration.Status.Phase == v1.MigrationSucceeded:
		d.dropFinalizer()
	case o.Target == nil && !o.TargetAsked:
		d.p.Needs = NeedTarget
	case !d.targetAlive():
		d.deleteEnded()
		d.dropFinalizer()
	default:
		d.deleteTarget()
	}
}

// Nothing else deletes a target pod that ended before a guest arrived, until the VMI's end.
func (d *decision) deleteEnded() {
	o, ms := &d.o, d.state()
	read := ms == nil || ms.Failed || d.targetIsOut()
	d.p.DeleteTarget = read && o.Target != nil && o.Target.DeletionTimestamp == nil && d.isTargetOurs() && !d.guestIsThere()
}

func (d *decision) targetAlive() bool {
	o := &d.o
	return o.Target != nil && !podstatus.Terminal(o.Target) && d.isTargetOurs() && !d.guestIsThere()
}

// isTargetOurs reports whether the pod was made for this migration. The bond to the VMI suffices, since labels can be
// lost.
func (d *decision) isTargetOurs() bool {
	o := &d.o
	return o.Target.Labels[v1.MigrationJobLabel] == string(o.Migration.UID) ||
		o.VMI != nil && launcherpod.BondOf(o.Target, o.VMI) != launcherpod.Foreign
}

func (d *decision) guestIsThere() bool {
	vmi, target := d.o.VMI, d.o.Target
	if vmi == nil || vmi.IsFinal() || vmi.Status.MigrationState == nil || launcherpod.BondOf(target, vmi) != launcherpod.Chosen {
		return false
	}
	ms := vmi.Status.MigrationState
	return ms.SourcePod == target.Name || ms.TargetPod == target.Name && switchover.Completed(ms)
}

// deleteTarget deletes the target pod unless a guest may run in it.
func (d *decision) deleteTarget() {
	o, ms := &d.o, d.state()
	if d.p.Migration.Status.Phase == v1.MigrationSucceeded || !d.targetAlive() || o.Target.DeletionTimestamp != nil {
		return
	}
	switch {
	case o.VMI != nil && o.VMI.IsFinal(), ms != nil && ms.Failed:
		d.p.DeleteTarget = true
	case !o.VMIAsked:
		d.p.Needs = NeedVMI
	case o.VMI == nil, launcherpod.BondOf(o.Target, o.VMI) != launcherpod.Chosen:
		d.p.DeleteTarget = true
	}
}

func (d *decision) dropFinalizer() {
	m := d.p.Migration
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == v1.VirtualMachineInstanceMigrationFinalizer })
	if len(m.Finalizers) == 0 {
		m.Finalizers = nil
	}
}

// requeueAt requeues at a time, unless an earlier one is planned.
func (d *decision) requeueAt(at time.Time) {
	d.p.After = backoff.Sooner(d.p.After, max(at.Sub(d.o.Now), time.Millisecond))
}

// Package migration decides about live migrations: what virt-controller does next for one
// VirtualMachineInstanceMigration (plan.go), which of those that wait may start (choose.go),
// which guests can migrate at all (eligibility.go), with what configuration (policy.go), and
// which ended migrations are deleted (garbage.go).
//
// It owns these decisions only. It is pure: it must not import a client or read the clock.
// How guest and disks are handed over between the two QEMUs is not decided here, nor is it
// virt-controller's: the two virt-handlers do that, and say in the VMI's
// status.migrationState how it went.
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
//   - The phase never goes back, and a final phase is never changed.
//   - No QEMU is started for a migration before the VMI's status names the target pod in
//     activePods, which one patch does together with migrationState. So a target pod may be
//     made twice before, and never after.
//   - Before startTimestamp is written, virt-controller may end a migration by itself. It
//     does so by a patch on condition of the VMI's resourceVersion, as the source's
//     virt-handler writes startTimestamp: one of them wins. From then on virt-controller
//     only asks (abortRequested), and the source's virt-handler says how it ended.
//   - A target pod is deleted only when no guest can run in it: the VMI does not name it, or
//     says that the migration has failed, or has ended itself. That the VMI does not name it
//     is believed of the API server only, never of a cache.
//   - The finalizer stays until the target pod is gone or has ended, or the guest runs in it.
package migration

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/objectevent"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/switchover"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// Observed is what a decision is made on.
type Observed struct {
	Migration *v1.VirtualMachineInstanceMigration
	// VMI is the one that the migration names, nil when none is known.
	VMI *v1.VirtualMachineInstance
	// VMIAsked means that VMI, also when it is nil, is what the API server itself has said.
	// So it is with the pods.
	VMIAsked bool
	// Source is the pod that the guest runs in, nil when none is known. It need not be
	// observed without a VMI.
	Source      *corev1.Pod
	SourceAsked bool
	// Target is the pod that has the name of the migration's target pod, nil when none is
	// known, and TargetName that name.
	Target      *corev1.Pod
	TargetAsked bool
	TargetName  string
	// Refusal is why the API server has just refused to make the target pod, "" if it has
	// not: then the decision says so instead of having it made.
	Refusal string
	// Choice is what Choose says of this migration. It counts only before the target pod.
	Choice Choice
	// Configuration is what Effective says. It counts only for handing over.
	Configuration Configuration
	// Warning is the newest warning about the target pod when WarningAsked, nil when
	// there is none.
	Warning      *objectevent.Warning
	WarningAsked bool
	// Obstacle is what keeps the attachment pods of the guest's volumes at the target from running when
	// ObstacleAsked, "" when nothing is known of that.
	Obstacle      string
	ObstacleAsked bool
	// Destinations are the claims that disks of the VMI are copied to when DestinationsAsked.
	Destinations      []volumemigration.Destination
	DestinationsAsked bool
	Now               time.Time
}

// Question is something that only the API server can answer.
type Question string

const (
	// NeedVMI asks for the VMI.
	NeedVMI Question = "the VMI"
	// NeedSource asks for the pod that the guest runs in.
	NeedSource Question = "the pod that the guest runs in"
	// NeedTarget asks for the target pod.
	NeedTarget Question = "the target pod"
	// NeedWarning asks what the target pod's events complain about.
	NeedWarning Question = "the target pod's events"
	// NeedObstacle asks what keeps the attachment pods at the target from running.
	NeedObstacle Question = "the attachment pods at the target"
	// NeedDestinations asks for the claims that disks of the VMI are copied to.
	NeedDestinations Question = "the claims that disks are copied to"
)

// Plan is what is to be done, in this order: create the target pod, patch the VMI, patch the
// migration's status, delete the target pod, patch the migration's finalizers. Whatever
// fails ends it: the next decision is made on what is there then.
type Plan struct {
	// Needs is what has to be asked before anything is done: then this is no plan, and
	// another one is to be made.
	Needs Question
	// CreateTarget makes the target pod. A second creation meets the name of the first.
	CreateTarget bool
	// VMI is what the VMI is to be told of the migration, in one patch on condition of its
	// resourceVersion; the zero value is nothing.
	VMI Told
	// Migration is the migration as it should be: its status, and its finalizers. It is
	// never nil, and shares the spec with the one that was observed.
	Migration *v1.VirtualMachineInstanceMigration
	// DeleteTarget deletes the target pod that was observed, on condition of its UID.
	DeleteTarget bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// Told are facts for a VMI's status, of which package vmistatus makes it. What a migration leaves
// on the VMI when it has failed, the label and the pod in activePods, package vmilifecycle takes off.
type Told struct {
	// Begin hands the VMI over to the virt-handlers of both nodes, nil if it is not now:
	// migrationState is replaced by it, activePods gets the target pod, and the label
	// v1.MigrationTargetNodeNameLabel the target's node.
	Begin *Begin
	// Abort means that the migration is to be stopped (abortRequested).
	Abort bool
	// Failure is why it has failed before anything of the guest was sent; "" if it has not.
	// It must not be written once startTimestamp is.
	Failure string
}

// Begin is what the VMI is told of a migration that it is handed over with.
type Begin struct {
	UID                   types.UID
	SourceNode, SourcePod string
	TargetNode, TargetPod string
	TargetPodUID          types.UID
	PolicyName            string
	Configuration         *v1.VMIMConfigurationOptions
}

// decision is a plan that is being made.
type decision struct {
	o Observed
	p Plan
}

// Decide returns the plan for what was observed.
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

// checks are the situations that a migration can be in. The first that applies decides.
var checks = []struct {
	name    string
	applies func(*decision) bool
	then    func(*decision)
}{
	{"it has ended",
		func(d *decision) bool { return d.o.Migration.IsFinal() },
		(*decision).tidy},
	{"the VMI is not shown",
		func(d *decision) bool { return d.o.VMI == nil && !d.o.VMIAsked },
		func(d *decision) { d.p.Needs = NeedVMI }},
	{"the VMI is gone",
		func(d *decision) bool { return d.o.VMI == nil },
		func(d *decision) { d.fail("the VMI %s does not exist (any more)", d.o.Migration.Spec.VMIName) }},
	{"the VMI has been handed over",
		(*decision).handedOver,
		(*decision).follow},
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
		(*decision).awaitStart},
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

// withoutItsSpec copies a migration but for its spec, which is not this loop's.
func withoutItsSpec(m *v1.VirtualMachineInstanceMigration) *v1.VirtualMachineInstanceMigration {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	m.Status.DeepCopyInto(&out.Status)
	return &out
}

// state is what the VMI says of this migration, nil when it speaks of none or of another.
func (d *decision) state() *v1.VirtualMachineInstanceMigrationState {
	if d.o.VMI == nil || d.o.VMI.Status.MigrationState == nil || d.o.VMI.Status.MigrationState.MigrationUID != d.o.Migration.UID {
		return nil
	}
	return d.o.VMI.Status.MigrationState
}

func (d *decision) handedOver() bool { return d.state() != nil }

// hindrance is why the migration can't be done, "" when it can, or may be when its turn
// comes.
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

// awaitStart waits for the guest, unless it has begun to run since.
func (d *decision) awaitStart() {
	if !d.o.VMIAsked {
		d.p.Needs = NeedVMI
		return
	}
	d.wait(ReasonStarting, "the guest has not started yet")
}

// awaitsStart reports whether the migration, which has no pod, waits for the start of the VMI's guest. If it has one, the
// VMI took another's name meanwhile.
func (d *decision) awaitsStart() bool {
	return Starts(d.o.VMI) && d.o.Target == nil && !d.o.Migration.TargetIsCreated()
}

// sourceEnds is why no migration starts from the pod that a guest runs in, "" when one may.
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

// decideStart has the target pod made when it is the migration's turn.
func (d *decision) decideStart() {
	switch {
	case !d.ready():
	case d.o.Choice == Choice{}:
		// It was chosen from what did not show the migration, or its VMI as it is by now.
		d.enter(v1.MigrationPending)
	case !d.o.Choice.May:
		d.wait(d.o.Choice.Reason, d.o.Choice.Message)
		d.p.After = d.o.Choice.After
	case !d.fits(false):
	case d.o.Refusal != "":
		d.enter(v1.MigrationPending)
		d.refused()
	default:
		d.goOn()
		d.p.CreateTarget = true
		d.enter(v1.MigrationScheduling)
	}
}

// ready reports whether the VMI has one launcher pod and volumes that stay as they are. It says for
// what the migration waits if it has not.
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

// follow looks after a migration that the VMI has been handed over with: the virt-handlers
// do the work, and say how far they are.
func (d *decision) follow() {
	ms := d.state()
	switch {
	case switchover.Completed(ms):
		d.arrive()
	case ms.Failed:
		d.end(v1.MigrationFailed)
		d.tidy()
	case d.o.VMI.IsFinal():
		d.fail("the VMI has ended: its phase is %s", d.o.VMI.Status.Phase)
	case d.silence() != "" && !d.o.VMIAsked:
		d.p.Needs = NeedVMI
	case d.silence() != "" && d.targetIsOut():
		d.abandon()
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
		d.awaitVirtHandlers(ms)
	}
}

// arrive ends a migration whose guest runs on the target, once the VMI says so.
func (d *decision) arrive() {
	ms := d.state()
	if d.o.VMI.Status.NodeName != ms.TargetNode && !d.o.VMI.IsFinal() {
		// The loop of the VMI switches its node (package vmilifecycle), which wakes this one.
		d.enter(v1.MigrationRunning)
		return
	}
	d.end(v1.MigrationSucceeded)
	d.tidy()
}

// phaseOf is how far the virt-handlers are with a migration that has not ended.
func phaseOf(ms *v1.VirtualMachineInstanceMigrationState) v1.VirtualMachineInstanceMigrationPhase {
	switch {
	case ms.StartTimestamp != nil:
		return v1.MigrationRunning
	case ms.TargetNodeAddress != "":
		return v1.MigrationTargetReady
	}
	return v1.MigrationPreparingTarget
}

// judgeReplaced ends a migration that has been going on, and of which the VMI does not
// speak any more.
func (d *decision) judgeReplaced() {
	if !d.o.VMIAsked {
		d.p.Needs = NeedVMI
		return
	}
	if ms := d.o.VMI.Status.MigrationState; ms != nil && ms.SourcePod == d.o.TargetName {
		// The guest has moved on from where this one has taken it.
		d.end(v1.MigrationSucceeded)
		d.tidy()
		return
	}
	d.fail("the VMI's status.migrationState does not name this migration any more")
}

// stopsBecause is why a migration that is going on is to be stopped, "" for no reason.
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

// tidy deletes what a migration that has ended leaves behind, and lets it go then.
func (d *decision) tidy() {
	o, ms := &d.o, d.state()
	if ms != nil && !ms.Completed && !ms.Failed && !o.VMI.IsFinal() && !d.targetIsOut() {
		// Somebody with an old view has handed over since.
		d.stop("the migration had ended before the VMI was handed over")
		return
	}
	switch {
	case !slices.Contains(o.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer):
		// It has been tidied up, or somebody has taken the finalizer off.
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

// deleteEnded deletes a target pod that has ended before any guest came to it: nobody else does,
// until the VMI goes.
func (d *decision) deleteEnded() {
	o, ms := &d.o, d.state()
	read := ms == nil || ms.Failed || d.targetIsOut()
	d.p.DeleteTarget = read && o.Target != nil && o.Target.DeletionTimestamp == nil && d.ours() && !d.guestIsThere()
}

// targetAlive reports whether there is a target pod that is to go, and has not ended.
func (d *decision) targetAlive() bool {
	o := &d.o
	return o.Target != nil && !podstatus.Terminal(o.Target) && d.ours() && !d.guestIsThere()
}

// ours reports whether the pod that has the target pod's name was made for this migration.
// Labels can be lost; what neither has its label nor is the VMI's is somebody else's.
func (d *decision) ours() bool {
	o := &d.o
	return o.Target.Labels[v1.MigrationJobLabel] == string(o.Migration.UID) ||
		o.VMI != nil && launcherpod.BondOf(o.Target, o.VMI) != launcherpod.Foreign
}

// guestIsThere reports whether the target pod is the one that the VMI's guest runs in.
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

// lookAgain asks for another look when a time has come, unless an earlier one is asked for.
func (d *decision) lookAgain(at time.Time) {
	d.p.After = backoff.Sooner(d.p.After, max(at.Sub(d.o.Now), time.Millisecond))
}

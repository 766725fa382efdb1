// Package vmilifecycle decides what virt-controller does for one VMI: when its
// launcher pod is made and deleted, when the VMI is handed over to a node, what
// of its pod is a fact for its status, and when it may go.
//
// It owns the decision only. It is pure: it must not import a client or read
// the clock. What the facts make of the VMI's status is package vmistatus'.
//
//	(empty) ──> Pending ──> Scheduling ──> Scheduled ──> Running ──> Succeeded
//	              │             │              │            │        Failed
//	              disks are     pod            pod bound    virt-handler's
//	              not ready     created        to a node
//	              (placement)
//
// Invariants:
//   - The phase never goes back, and a final phase is never changed, unless the VMI is to have no
//     guest for now (spec.startStrategy Maintenance): once its guest has ended, and no pod is left of
//     it, it begins anew, and waits (maintained.go).
//   - A VMI starts in at most one launcher pod: its name follows from the VMI's UID. The
//     pod is the VMI's by that name, whoever owns it (launcherpod.BondOf). A second one is
//     the VMI's while it migrates (migration.go).
//   - No guest runs before Scheduled has been written: virt-handler starts QEMU
//     only in a pod that status.activePods names. So a pod that vanishes before
//     is made again, and one that vanishes after is the end of the VMI, but not
//     at once: a pod that is deleted by force vanishes while its guest runs
//     (vanished.go).
//   - That a pod is absent is believed of the API server only, never of a cache.
//   - The finalizers stay until no guest can run: virt-handler has said so, or the
//     processes of both pods have ended, or their time is over on a node that answers.
//   - No pod is made, and none is handed over to its node, while a guest may run
//     beside which this one must not run (rivals.go).
//   - None is handed over to its node while the VM is locked for a maintenance pod: the API
//     server is asked when the VMI exists, and whoever locks the VM looks for its VMI
//     afterwards (maintained.go, package maintenance). A VMI that is locked itself, or may be, gets no
//     pod and is not handed over.
package vmilifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migrationrequired"
	"drydock.dev/drydock/internal/rules/objectevent"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// handlerPatience is how long virt-handler, whose task it is, is left alone
// with the end of a guest before the controller deletes the pod. The deletion
// is as graceful (virt-launcher presses the power button, too), so being early
// costs nothing but a write; it only covers a virt-handler that is away.
const handlerPatience = 10 * time.Second

// schedulerPatience is how long a VMI's pod may be without a node before the VMI
// says so. The time of a pod's creation is known to the second only, so that less
// than two would at times be none.
const schedulerPatience = 2 * time.Second

// Observed is what a decision is made on.
type Observed struct {
	VMI *v1.VirtualMachineInstance
	// Pod is the pod that has the name of the VMI's launcher pod (launcherpod.CurrentName),
	// nil when none is known. A pod that is gone is still shown if its processes had ended by then.
	Pod *corev1.Pod
	// PodAsked means that Pod, also when it is nil, is what the API server itself
	// has said.
	PodAsked bool
	// Other is the pod that has the name of launcherpod.OtherName, nil when none is known
	// or the VMI names none; OtherAsked as for Pod. OtherMissed is when OtherAsked first
	// found it gone, the zero time if that has not been, and OtherNode its node as the
	// API server has said when OtherNodeAsked.
	Other          *corev1.Pod
	OtherAsked     bool
	OtherMissed    time.Time
	OtherNode      *corev1.Node
	OtherNodeAsked bool
	// Rivals are the guests beside which this one must not run, as far as
	// RivalsAsked: then they are what the API server has said.
	Rivals      []Rival
	RivalsAsked bool
	// VM is the VM of the VMI's name, as the API server has said when VMAsked; nil when there is none.
	VM      *v1.VirtualMachine
	VMAsked bool
	// Node is the VMI's node, as the API server has said when NodeAsked; nil when
	// there is none.
	Node      *corev1.Node
	NodeAsked bool
	// Claims are those that the VMI's volumes are on, ClaimsConfirmed and Homes
	// what the API server says of them, as package placement has it. They need
	// not be known of a VMI whose guest may run.
	Claims          []placement.Claim
	ClaimsConfirmed bool
	Topologies      []placement.Topology
	// Provisioning is the VMI's provisioning pod, nil when none is known.
	Provisioning *corev1.Pod
	// Warning is the newest warning about the pod when WarningAsked, nil when
	// there is none.
	Warning      *Warning
	WarningAsked bool
	// Resources are what the launcher pod of a guest that changes is to have; nil unless asked for.
	Resources *corev1.ResourceRequirements
	// GuestsStay means that no migration is made by itself of a guest whose pod lacks something.
	GuestsStay bool
	Now        time.Time
}

// Warning is what an Event says.
type Warning = objectevent.Warning

// Question is something that only the API server can answer.
type Question string

const (
	// NeedPod asks whether the launcher pod exists.
	NeedPod Question = "the launcher pod"
	// NeedOther asks whether the VMI's other launcher pod exists.
	NeedOther Question = "the other launcher pod"
	// NeedOtherNode asks for that pod's node.
	NeedOtherNode Question = "the other launcher pod's node"
	// NeedDisks asks what placement.Plan.Confirm asks for.
	NeedDisks Question = "the claims and what uses them"
	// NeedRivals asks for the guests beside which this one must not run.
	NeedRivals Question = "the guests beside which this one must not run"
	// NeedVM asks for the VM of the VMI's name, which may be locked. It must not be asked of a cache.
	NeedVM Question = "the VM"
	// NeedNode asks for the VMI's node.
	NeedNode Question = "the VMI's node"
	// NeedWarning asks what the pod's events complain about.
	NeedWarning Question = "the launcher pod's events"
	// NeedResources asks what the launcher pod is to have.
	NeedResources Question = "the launcher pod's resources"
)

// Plan is what is to be done, in this order: what concerns the disks, create the claim of the VM's
// state, create the launcher pod, open the gate, annotate the launcher pod, patch the VMI, resize the pod, delete pods.
type Plan struct {
	// Needs is what has to be asked before anything is done: then this is no plan, and
	// another one is to be made.
	Needs Question
	// Disks is what package placement has planned.
	Disks placement.Plan
	// CreateState makes the claim that the VM's state is kept on (package vmstate).
	CreateState bool
	CreatePod   bool
	// VMI is the VMI as it should be; never nil. It shares the spec, of which this loop changes
	// only the claims that a migration has brought the guest to, with the VMI that was
	// observed, and the status if that is to stay.
	VMI *v1.VirtualMachineInstance
	// Resize gives the pod that was observed Observed.Resources.
	Resize bool
	// DeletePod deletes the pod that was observed, on condition that the VMI is
	// still the one that was observed.
	DeletePod bool
	// DeleteOther deletes the other pod that was observed, likewise.
	DeleteOther bool
	// OpenGate opens the readiness gate launcherpod.GuestGate of the other pod, in which
	// the guest runs now.
	OpenGate bool
	// LabelNode gives the pod that was observed the label kubevirt.io/nodeName.
	LabelNode bool
	// Networks is what the pod's annotation launcherpod.NetworksAnnotation is to be, "" for none; nil leaves it.
	Networks *string
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// decision is a plan that is being made, with the facts for the VMI's status.
type decision struct {
	o     Observed
	p     Plan
	facts vmistatus.Facts
	// unreported is for how long the facts may go unreported of a VMI of which nothing had to
	// be said so far.
	unreported time.Duration
	// noRoom is what the pod's node has no room for.
	noRoom []migrationrequired.Need
}

// Decide gives the plan for what was observed.
func Decide(o Observed) Plan {
	d := &decision{o: o, facts: vmistatus.Facts{Now: o.Now}}
	d.p.VMI = withoutItsSpec(o.VMI)
	d.p.Disks = planDisks(o)
	if settled := d.settleBond(); !settled {
		d.p.Needs = NeedPod
		return d.p
	}
	switch vmistatus.StageOf(o.VMI.Status.Phase) {
	case vmistatus.Waiting:
		d.decideWaiting()
	case vmistatus.HandedOver:
		d.decideHandedOver()
		d.labelNode()
	case vmistatus.Ended:
		d.decideEnded()
	}
	d.writeStatus()
	if d.p.Needs == "" && d.p.Disks.Confirm && !o.ClaimsConfirmed {
		d.p.Needs = NeedDisks
	}
	d.lookAgain(d.p.Disks.After)
	return d.p
}

// lookAgain asks for another look, which an earlier one replaces.
func (d *decision) lookAgain(after time.Duration) { d.p.After = backoff.Sooner(d.p.After, after) }

// withoutItsSpec copies a VMI's metadata. Spec and status stay shared: the one is not
// this loop's, and the other is replaced as a whole.
func withoutItsSpec(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := *vmi
	vmi.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// writeStatus makes the status of the facts, unless the difference is not worth a
// write.
func (d *decision) writeStatus() {
	from := &d.o.VMI.Status
	obstacle, _ := d.facts.Obstacle.Get()
	switch {
	case d.unreported > 0 && from.Phase == v1.VmPhaseUnset && !placement.FilledByDataVolumes(d.o.Claims):
		// The scheduler needs some milliseconds as a rule, and the pod, bound, takes
		// the VMI to Scheduled in the first write that it gets.
		d.lookAgain(d.unreported)
	case obstacle != nil && obstacle.Reason == vmistatus.ReasonSandbox && failedFor(from) == vmistatus.ReasonSandbox:
		// It names another sandbox at every attempt.
	default:
		d.p.VMI.Status = vmistatus.Project(d.o.VMI, vmistatus.Controller, d.facts)
	}
}

// failedFor is the reason of the condition Synchronized, "" without one.
func failedFor(status *v1.VirtualMachineInstanceStatus) string {
	if c := condition.Find(status.Conditions, v1.VirtualMachineInstanceSynchronized); c != nil {
		return c.Reason
	}
	return ""
}

// planDisks brings the VMI's disks to where it fits, as long as it has no
// launcher pod: from then on they are where it is.
func planDisks(o Observed) placement.Plan {
	return placement.Decide(placement.Observed{
		Wanted: o.Pod == nil && o.VMI.DeletionTimestamp == nil && waits(o.VMI) && !Maintained(o.VMI),
		Claims: o.Claims, Confirmed: o.ClaimsConfirmed, Topologies: o.Topologies, Pod: o.Provisioning, Now: o.Now,
	})
}

// waits reports whether no guest can run yet.
func waits(vmi *v1.VirtualMachineInstance) bool {
	return vmistatus.StageOf(vmi.Status.Phase) == vmistatus.Waiting
}

// settleBond looks at whose the pod is that has the name. It reports false when a
// cache shows another pod than the one that the VMI was handed over with.
func (d *decision) settleBond() bool {
	o := &d.o
	if o.Pod == nil {
		return true
	}
	bond := launcherpod.BondOf(o.Pod, o.VMI)
	switch {
	case bond == launcherpod.Chosen, waits(o.VMI) && (bond != launcherpod.Foreign || o.VMI.DeletionTimestamp == nil):
		return true
	case bond == launcherpod.Whole && podstatus.Terminal(o.Pod) && len(d.uidsOn(o.VMI.Status.NodeName)) == 0 && d.migrated():
		// It was taken out of activePods when it had ended and sent its guest.
		return true
	case !o.PodAsked:
		return false
	}
	// The VMI's own pod is gone: the names are the same. A leader with an old view
	// has made this one since, unless it is none of ours at all.
	d.p.DeletePod = bond != launcherpod.Foreign && !podstatus.Terminal(o.Pod) && o.Pod.DeletionTimestamp == nil
	o.Pod = nil
	return true
}

// decideWaiting looks after a VMI whose guest cannot run yet: it is brought to
// Scheduled, or goes, or is kept without a guest.
func (d *decision) decideWaiting() {
	switch {
	case d.o.VMI.DeletionTimestamp != nil:
		d.decideDeletion()
		return
	case Maintained(d.o.VMI):
		d.decideMaintained()
		return
	}
	for _, c := range startChecks {
		if c.applies(d) {
			c.then(d)
			return
		}
	}
}

// decideHandedOver looks after a VMI that is virt-handler's: only the end of its
// pod, and what keeps the pod's container from starting, are seen here.
func (d *decision) decideHandedOver() {
	o := &d.o
	d.shutDown()
	if d.migrated() {
		d.decideMigrated()
		d.decideRequired()
		return
	}
	switch {
	case o.Pod == nil && !o.PodAsked:
		d.p.Needs = NeedPod
	case o.Pod == nil:
		d.decideVanished()
	case podstatus.Terminal(o.Pod):
		d.facts.End = vmistatus.EndOfPod(o.VMI, o.Pod)
	case o.VMI.DeletionTimestamp != nil:
		// virt-handler ends the guest, and the pod's end is seen.
	case o.Pod.DeletionTimestamp != nil, MarksNodeLost(o.Pod):
		d.reportInterrupted()
	case o.VMI.Status.Phase == v1.Scheduled && beingMade(o.Pod):
		d.reportPreparation()
	case o.VMI.Status.Phase == v1.Scheduled:
		d.facts.Obstacle = containerObstacle(o.Pod)
	}
	if o.VMI.DeletionTimestamp != nil {
		d.decideDeletion()
	}
	d.decideRequired()
}

// labelNode has the pod of a guest say which node it is on, if a network plugin sends the guest's traffic by that: of the guests
// on the pods' network it does for those that keep their address when they migrate. The pod that a migration
// brings a guest to says it for all (OpenGate).
func (d *decision) labelNode() {
	pod := d.o.Pod
	if _, reads := d.o.VMI.Annotations[v1.AllowPodBridgeNetworkLiveMigrationAnnotation]; !reads || pod == nil {
		return
	}
	node := d.o.VMI.Status.NodeName
	d.p.LabelNode = node != "" && pod.Spec.NodeName == node && pod.Labels[v1.NodeNameLabel] != node &&
		pod.DeletionTimestamp == nil && !podstatus.Terminal(pod)
}

// decideEnded deletes a pod that outlives its guest: virt-launcher ends with
// QEMU, so this covers one that never started it.
func (d *decision) decideEnded() {
	o := &d.o
	switch {
	case o.VMI.DeletionTimestamp != nil:
		d.decideDeletion()
	case lock.Wanted(o.VMI) && d.decideAnew():
		return
	case o.Pod != nil && !podstatus.Terminal(o.Pod) && o.Pod.DeletionTimestamp == nil:
		d.await(vmistatus.PhaseSince(o.VMI).Add(handlerPatience), &d.p.DeletePod)
	}
	if o.VMI.DeletionTimestamp == nil && o.Other != nil && !podstatus.Terminal(o.Other) && o.Other.DeletionTimestamp == nil &&
		launcherpod.BondOf(o.Other, o.VMI) != launcherpod.Foreign {
		d.await(vmistatus.PhaseSince(o.VMI).Add(handlerPatience), &d.p.DeleteOther)
	}
}

// decideDeletion ends a VMI that is to go, gracefully while a guest may run.
func (d *decision) decideDeletion() {
	o := &d.o
	mayRun := vmistatus.StageOf(o.VMI.Status.Phase) == vmistatus.HandedOver
	otherEnded, settled := d.otherEnded()
	letGo := func() {
		if otherEnded {
			dropFinalizers(d.p.VMI)
		}
	}
	switch {
	case !settled:
	case o.Pod == nil && !o.PodAsked:
		d.p.Needs = NeedPod
	case o.Pod == nil && mayRun && d.facts.End == nil:
		// It has not been given up yet.
	case o.Pod == nil:
		letGo()
	case podstatus.Terminal(o.Pod):
		// It can't run any more; its owner's end is its own.
		d.facts.End = vmistatus.EndOfPod(o.VMI, o.Pod)
		letGo()
	case o.Pod.DeletionTimestamp != nil && o.Pod.Spec.NodeName == "":
		// It gets no node any more, whatever else keeps its object.
		letGo()
	case o.Pod.DeletionTimestamp != nil:
	case o.VMI.Status.Phase == v1.Running:
		d.await(o.VMI.DeletionTimestamp.Add(handlerPatience), &d.p.DeletePod)
	default:
		d.p.DeletePod = true
	}
}

// await plans a deletion when the deadline has passed, or asks to look again then.
func (d *decision) await(deadline time.Time, deletion *bool) {
	if d.o.Now.Before(deadline) {
		d.lookAgain(deadline.Sub(d.o.Now))
		return
	}
	*deletion = true
}

func dropFinalizers(vmi *v1.VirtualMachineInstance) {
	vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool {
		return f == v1.VirtualMachineInstanceFinalizer || f == v1.DeprecatedVirtualMachineInstanceFinalizer
	})
	if len(vmi.Finalizers) == 0 {
		vmi.Finalizers = nil
	}
}

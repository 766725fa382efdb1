// Package vmicontroller decides virt-controller's actions for one VMI: the creation and deletion of its launcher pod,
// the handover to a node, the pod's facts for the VMI's status, and the end of its finalizers.
//
// It must not import a client, read the clock, or derive the VMI's status from the facts (package vmistatus).
//
//	(empty) ──> Pending ──> Scheduling ──> Scheduled ──> Running ──> Succeeded
//	              │             │              │            │        Failed
//	              disks are     pod            pod bound    virt-handler's
//	              not ready     created        to a node
//	              (placement)
//
// Invariants:
//   - The phase never goes back, and a final phase never changes, unless the VMI must have no guest for
//     now: it starts over when its guest has ended and its pods are gone (maintenance.go).
//   - A VMI starts in at most one launcher pod, whose name follows from the VMI's UID. The pod with that
//     name is the VMI's, whatever its owner (launcherpod.BondOf). A migrating VMI has a second one
//     (migration.go).
//   - No guest runs before Scheduled is written: virt-handler starts QEMU only in a pod in
//     status.activePods. So a pod that vanishes before is created again. One that vanishes later ends
//     the VMI, but not at once: a pod deleted by force vanishes while its guest runs (podlost.go).
//   - Only the API server, never a cache, proves that a pod is absent.
//   - The finalizers stay until no guest can run: virt-handler has reported that, or the processes of
//     both pods have ended, or their time is over on a node that answers.
//   - No pod is created or handed over while a guest may run that excludes this one (rivals.go).
//   - No VMI is handed over while its VM is locked for a maintenance pod. The VM is read when the VMI
//     exists, and the locking side looks for the VMI after taking the lock (maintenance.go). A VMI that
//     is or may be locked itself gets no pod and is not handed over.
package vmicontroller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// handlerPatience is virt-handler's time to end a guest before the pod is deleted, which is as graceful: virt-handler may
// not run.
const handlerPatience = 10 * time.Second

// schedulerPatience is how long a pod may have no node before the VMI reports it. The pod's creation time has whole
// seconds, so less than two could mean none.
const schedulerPatience = 2 * time.Second

// Observed is the input of a decision.
type Observed struct {
	VMI *v1.VirtualMachineInstance
	// Pod has the name launcherpod.CurrentName. An ended one stays when its object is gone.
	Pod *corev1.Pod
	// An Asked field means that its value, even nil, is from the API server.
	PodAsked bool
	// Other has the name launcherpod.OtherName.
	Other          *corev1.Pod
	OtherAsked     bool
	OtherMissed    time.Time // when OtherAsked first found it gone, or zero
	OtherNode      *corev1.Node
	OtherNodeAsked bool
	Rivals         []Rival
	RivalsAsked    bool
	VM             *v1.VirtualMachine
	VMAsked        bool
	Node           *corev1.Node
	NodeAsked      bool
	// ClaimsConfirmed means that Claims and Topologies are from the API server. A VMI whose guest may run needs neither.
	Claims          []placement.Claim
	ClaimsConfirmed bool
	Topologies      []placement.Topology
	Provisioning    *corev1.Pod
	Warning         *Warning
	WarningAsked    bool
	Resources       *corev1.ResourceRequirements // desired ones of a changing guest's launcher pod
	GuestsStay      bool                         // no automatic migration of a guest whose pod lacks something
	Now             time.Time
}

// Warning is a warning about the launcher pod.
type Warning = objectevent.Warning

// Question is a question that only the API server can answer.
type Question string

// The questions.
const (
	NeedPod       Question = "the launcher pod"
	NeedOther     Question = "the other launcher pod"
	NeedOtherNode Question = "the other launcher pod's node"
	NeedDisks     Question = "the claims and what uses them" // placement.Plan.Confirm
	NeedRivals    Question = "the guests beside which this one must not run"
	// A cache must not answer NeedVM: the VM may be locked.
	NeedVM        Question = "the VM"
	NeedNode      Question = "the VMI's node"
	NeedWarning   Question = "the launcher pod's events"
	NeedResources Question = "the launcher pod's resources"
)

// Plan has actions in this order: the disks, create the claim of the VM's state, create the launcher pod, open the
// gate, annotate the launcher pod, patch the VMI, resize the pod, delete pods.
type Plan struct {
	// Needs must be answered first; then another plan is made.
	Needs       Question
	Disks       placement.Plan
	CreateState bool
	CreatePod   bool
	// VMI is the desired VMI, never nil. It shares an unchanged status with the observed VMI, and the spec except the
	// claims of an arrived guest.
	VMI    *v1.VirtualMachineInstance
	Resize bool // give the pod Observed.Resources
	// DeletePod and DeleteOther do not act if the patch conflicts with a newer VMI.
	DeletePod    bool
	DeleteOther  bool
	OpenGate     bool          // the other pod's launcherpod.GuestGate: the guest runs there now
	LabelNode    bool          // set the pod's label kubevirt.io/nodeName
	MarkEviction *bool         // set or remove launcherpod.EvictionInProgressAnnotation; nil leaves it
	Networks     *string       // launcherpod.NetworksAnnotation; "" removes it, nil leaves it
	After        time.Duration // requeue delay, zero for none
}

type decision struct {
	o          Observed
	p          Plan
	facts      vmistatus.Facts
	unreported time.Duration            // how long a VMI without a phase need not report the facts
	noRoom     []migrationrequired.Need // changes for which the pod's node has no room
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{o: o, facts: vmistatus.Facts{Now: o.Now}}
	d.p.VMI = withoutItsSpec(o.VMI)
	d.p.Disks = placement.Decide(placement.Observed{
		Wanted: o.Pod == nil && o.VMI.DeletionTimestamp == nil && waits(o.VMI) && !Maintained(o.VMI), // later they are where the pod is
		Claims: o.Claims, Confirmed: o.ClaimsConfirmed, Topologies: o.Topologies, Pod: o.Provisioning, Now: o.Now,
	})
	if settled := d.dropReplacedPod(); !settled {
		d.p.Needs = NeedPod
		return d.p
	}
	switch vmistatus.StageOf(o.VMI.Status.Phase) {
	case vmistatus.Waiting:
		d.decideWaiting()
	case vmistatus.HandedOver:
		d.decideHandedOver()
		d.labelNode()
		if mark, differs := launcherpod.EvictionMark(d.o.VMI, d.o.Pod); differs {
			d.p.MarkEviction = &mark
		}
	case vmistatus.Ended:
		d.decideEnded()
	}
	d.writeStatus()
	if d.p.Needs == "" && d.p.Disks.Confirm && !o.ClaimsConfirmed {
		d.p.Needs = NeedDisks
	}
	d.requeueAfter(d.p.Disks.After)
	return d.p
}

func (d *decision) requeueAfter(after time.Duration) { d.p.After = backoff.Sooner(d.p.After, after) }

// The spec is not this loop's, and the status is replaced as a whole.
func withoutItsSpec(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := *vmi
	vmi.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// writeStatus leaves the status if the difference is not worth a write.
func (d *decision) writeStatus() {
	from := &d.o.VMI.Status
	obstacle, _ := d.facts.Obstacle.Get()
	reported := condition.Find(from.Conditions, v1.VirtualMachineInstanceSynchronized)
	switch {
	case d.unreported > 0 && from.Phase == v1.VmPhaseUnset && !placement.FilledByDataVolumes(d.o.Claims):
		// The scheduler usually takes milliseconds, and the first write then sets Scheduled.
		d.requeueAfter(d.unreported)
	case obstacle != nil && obstacle.Reason == vmistatus.ReasonSandbox && reported != nil && reported.Reason == vmistatus.ReasonSandbox:
		// The message names another sandbox at every attempt.
	default:
		d.p.VMI.Status = vmistatus.Project(d.o.VMI, vmistatus.Controller, d.facts)
	}
}

func waits(vmi *v1.VirtualMachineInstance) bool {
	return vmistatus.StageOf(vmi.Status.Phase) == vmistatus.Waiting
}

// dropReplacedPod ignores a pod with the right name that is not the VMI's. It returns false if a cache has another pod
// than the handover's.
func (d *decision) dropReplacedPod() bool {
	o := &d.o
	if o.Pod == nil {
		return true
	}
	bond := launcherpod.BondOf(o.Pod, o.VMI)
	switch {
	case bond == launcherpod.Chosen, waits(o.VMI) && (bond != launcherpod.Foreign || o.VMI.DeletionTimestamp == nil):
		return true
	case bond == launcherpod.Whole && podstatus.Terminal(o.Pod) && len(d.uidsOn(o.VMI.Status.NodeName)) == 0 && d.migrated():
		// It had sent its guest and ended before it was removed from activePods.
		return true
	case !o.PodAsked:
		return false
	}
	// The VMI's own pod is gone. A former leader with an outdated cache has created this one, unless it is Foreign.
	d.p.DeletePod = bond != launcherpod.Foreign && !podstatus.Terminal(o.Pod) && o.Pod.DeletionTimestamp == nil
	o.Pod = nil
	return true
}

func (d *decision) decideWaiting() {
	switch {
	case d.o.VMI.DeletionTimestamp != nil:
		d.decideDeletion()
		return
	case Maintained(d.o.VMI):
		d.p.DeletePod = d.p.DeletePod || d.o.Pod != nil && d.o.Pod.DeletionTimestamp == nil && d.bond() != launcherpod.Foreign
		d.reportMaintenance()
		return
	}
	for _, c := range startChecks {
		if c.applies(d) {
			c.then(d)
			return
		}
	}
}

// virt-handler decides everything but the pod's end and its container's start.
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
		// virt-handler ends the guest, and then the pod's end is observed.
	case o.Pod.DeletionTimestamp != nil, MarksNodeLost(o.Pod):
		d.reportInterrupted()
	case o.VMI.Status.Phase == v1.Scheduled && isBeingPrepared(o.Pod):
		d.reportPreparation()
	case o.VMI.Status.Phase == v1.Scheduled:
		d.facts.Obstacle = containerObstacle(o.Pod)
	}
	if o.VMI.DeletionTimestamp != nil {
		d.decideDeletion()
	}
	d.decideRequired()
}

// By this label a network plugin routes the traffic of guests that keep their address on the pod network. OpenGate adds
// it for every migrated guest.
func (d *decision) labelNode() {
	pod := d.o.Pod
	if _, reads := d.o.VMI.Annotations[v1.AllowPodBridgeNetworkLiveMigrationAnnotation]; !reads || pod == nil {
		return
	}
	node := d.o.VMI.Status.NodeName
	d.p.LabelNode = node != "" && pod.Spec.NodeName == node && pod.Labels[v1.NodeNameLabel] != node &&
		pod.DeletionTimestamp == nil && !podstatus.Terminal(pod)
}

// virt-launcher ends with QEMU, so this only concerns a pod that never started it.
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
	case o.Pod == nil && mayRun && d.facts.End == nil: // not ended yet
	case o.Pod == nil:
		letGo()
	case podstatus.Terminal(o.Pod):
		// The guest can't run any more, so the pod's end is the VMI's.
		d.facts.End = vmistatus.EndOfPod(o.VMI, o.Pod)
		letGo()
	case o.Pod.DeletionTimestamp != nil && o.Pod.Spec.NodeName == "":
		// It never gets a node, whatever else keeps its object.
		letGo()
	case o.Pod.DeletionTimestamp != nil:
	case o.VMI.Status.Phase == v1.Running:
		d.await(o.VMI.DeletionTimestamp.Add(handlerPatience), &d.p.DeletePod)
	default:
		d.p.DeletePod = true
	}
}

func (d *decision) await(deadline time.Time, deletion *bool) {
	if d.o.Now.Before(deadline) {
		d.requeueAfter(deadline.Sub(d.o.Now))
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

// Package vmilife decides what virt-controller does for one VMI: when its
// launcher pod is made and deleted, which phase the VMI is in as far as its
// pod tells, what its conditions say, and when it may go.
//
// It owns the decision only. It is pure: it must not import a client or read
// the clock. What virt-handler decides (Running, how a guest ended when it
// heard the end itself) is not decided again here.
//
//	(empty) ──> Pending ──> Scheduling ──> Scheduled ──> Running ──> Succeeded
//	              │             │              │            │        Failed
//	              disks are     pod            pod bound    virt-handler's
//	              not ready     created        to a node
//	              (placement)
//
// Invariants:
//   - The phase never goes back, and a final phase is never changed.
//   - A VMI has at most one launcher pod: its name follows from the VMI's UID. The
//     pod is the VMI's by that name, whoever owns it (launcherpod.BondOf).
//   - No guest runs before Scheduled has been written: virt-handler starts QEMU
//     only in a pod that status.activePods names. So a pod that vanishes before
//     is made again, and one that vanishes after is the end of the VMI, but not
//     at once: a pod that is deleted by force vanishes while its guest runs
//     (vanished.go).
//   - That a pod is absent is believed of the API server only, never of a cache.
//   - The finalizers stay until no guest can run: virt-handler has said so, or the
//     pod's processes have ended, or their time is over on a node that answers.
//   - No pod is made, and none is handed over to its node, while a guest may run
//     beside which this one must not run (rivals.go).
package vmilife

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/launcherpod"
	"drydock.dev/drydock/internal/layout"
	"drydock.dev/drydock/internal/placement"
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
	// Pod is the pod that has the name of the VMI's launcher pod, nil when none is
	// known. A pod that is gone is still shown if its processes had ended by then.
	Pod *corev1.Pod
	// PodAsked means that Pod, also when it is nil, is what the API server itself
	// has said.
	PodAsked bool
	// Rivals are the guests beside which this one must not run, as far as
	// RivalsAsked: then they are what the API server has said.
	Rivals      []Rival
	RivalsAsked bool
	// Node is the VMI's node, as the API server has said when NodeAsked; nil when
	// there is none.
	Node      *corev1.Node
	NodeAsked bool
	// Claims are those that the VMI's volumes are on, ClaimsConfirmed and Homes
	// what the API server says of them, as package placement has it. They need
	// not be known of a VMI whose guest may run.
	Claims          []placement.Claim
	ClaimsConfirmed bool
	Homes           []placement.Home
	// Provisioning is the VMI's provisioning pod, nil when none is known.
	Provisioning *corev1.Pod
	// Warning is the newest warning about the pod when WarningAsked, nil when
	// there is none.
	Warning      *Warning
	WarningAsked bool
	Now          time.Time
}

// Warning is what an Event says.
type Warning struct{ Reason, Message string }

// Plan is what is to be done, in this order: ask and plan again, what concerns
// the disks, create the launcher pod, patch the VMI, delete the pod.
type Plan struct {
	// Disks is what package placement has planned.
	Disks placement.Plan
	// AskForPod asks the API server whether the pod exists, and plans again.
	AskForPod bool
	// AskForRivals asks the API server for the guests beside which this one must
	// not run, and plans again; AskForNode asks it for the VMI's node.
	AskForRivals, AskForNode bool
	// AskForWarning asks the API server what the pod's events complain about,
	// and plans again.
	AskForWarning bool
	CreatePod     bool
	// VMI is the VMI as it should be; never nil. It shares the spec, which is not
	// this loop's, with the VMI that was observed.
	VMI *v1.VirtualMachineInstance
	// DeletePod deletes the pod that was observed, on condition that the VMI is
	// still the one that was observed.
	DeletePod bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// Decide gives the plan for what was observed.
func Decide(o Observed) Plan {
	p := Plan{VMI: withoutItsSpec(o.VMI)}
	p.Disks = planDisks(o)
	if settled := o.settleBond(&p); !settled {
		p.AskForPod = true
		return p
	}
	switch {
	case o.VMI.DeletionTimestamp != nil:
		decideDeletion(o, &p)
	case o.VMI.IsFinal():
		decideFinal(o, &p)
	case started(o.VMI):
		decideStarted(o, &p)
	default:
		decideStart(o, &p)
	}
	if p.After == 0 || p.Disks.After > 0 && p.Disks.After < p.After {
		p.After = p.Disks.After
	}
	return p
}

// withoutItsSpec copies all of a VMI but the spec.
func withoutItsSpec(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := *vmi
	vmi.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	vmi.Status.DeepCopyInto(&out.Status)
	return &out
}

// planDisks brings the VMI's disks to where it fits, as long as it has no
// launcher pod: from then on they are where it is.
func planDisks(o Observed) placement.Plan {
	return placement.Decide(placement.Observed{
		Wanted: o.Pod == nil && o.VMI.DeletionTimestamp == nil && !o.VMI.IsFinal() && !started(o.VMI),
		Claims: o.Claims, Confirmed: o.ClaimsConfirmed, Homes: o.Homes, Pod: o.Provisioning, Now: o.Now,
	})
}

// settleBond looks at whose the pod is that has the name. It reports false when a
// cache shows another pod than the one that the VMI was handed over with.
func (o *Observed) settleBond(p *Plan) bool {
	if o.Pod == nil {
		return true
	}
	bond := launcherpod.BondOf(o.Pod, o.VMI)
	switch {
	case bond == launcherpod.Chosen, !started(o.VMI) && (bond != launcherpod.Foreign || o.VMI.DeletionTimestamp == nil):
		return true
	case !o.PodAsked:
		return false
	}
	// The VMI's own pod is gone: the names are the same. A leader with an old view
	// has made this one since, unless it is none of ours at all.
	p.DeletePod = bond != launcherpod.Foreign && !podFinished(o.Pod) && o.Pod.DeletionTimestamp == nil
	o.Pod = nil
	return true
}

// started tells whether a guest may run: virt-handler owns the phase from
// Scheduled on.
func started(vmi *v1.VirtualMachineInstance) bool {
	switch vmi.Status.Phase {
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling:
		return false
	}
	return true
}

// decideStart brings a VMI whose guest cannot run yet to Scheduled.
func decideStart(o Observed, p *Plan) {
	switch {
	case o.Pod == nil && !o.PodAsked && o.VMI.Status.Phase == v1.Scheduling:
		// It has been made; a read is cheaper than a creation that fails.
		p.AskForPod = true
	case p.Disks.Confirm:
		// Nothing is said before it is sure.
	case o.Pod == nil && p.Disks.State == placement.Clear && o.Provisioning != nil:
		// What it asks for is not to be counted twice.
	case o.Pod == nil && p.Disks.State != placement.Clear:
		if o.VMI.Status.Phase == v1.VmPhaseUnset {
			setPhase(p.VMI, v1.Pending, o.Now)
		}
		reportDisks(p.VMI, o, p.Disks)
	case o.Pod == nil && !o.RivalsAsked:
		p.AskForRivals = true
	case o.Pod == nil && len(o.Rivals) > 0:
		awaitRivals(o, p)
	case o.Pod == nil && unspoken(o):
		p.CreatePod = true
		p.After = schedulerPatience
	case o.Pod == nil:
		// A second creation, on whatever stale view, meets the first one's name.
		p.CreatePod = true
		disksReady(p.VMI, o)
		condition.Drop(&p.VMI.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		setPhase(p.VMI, v1.Scheduling, o.Now)
		condition.Set(&p.VMI.Status.Conditions, notReady(waitingForNode), o.Now)
	default:
		decidePod(o, p)
	}
}

// decidePod looks after a launcher pod in which no guest can run yet.
func decidePod(o Observed, p *Plan) {
	switch bond := launcherpod.BondOf(o.Pod, o.VMI); {
	case bond == launcherpod.Foreign:
		reportTaken(o, p)
	case bond == launcherpod.Damaged:
		p.DeletePod = o.Pod.DeletionTimestamp == nil
		awaitPodsEnd(o, p)
	case o.Pod.DeletionTimestamp != nil:
		// Somebody deleted it before it was of use, or it made way for another
		// guest; its successor has the same name and must wait until it is gone.
		awaitPodsEnd(o, p)
	case podFinished(o.Pod):
		finish(p.VMI, o, endOf(o.Pod))
	case o.Pod.Spec.NodeName == "" && unspoken(o) && soon(o) > 0:
		p.After = soon(o)
	case o.Pod.Spec.NodeName == "":
		condition.Drop(&p.VMI.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		setPhase(p.VMI, v1.Scheduling, o.Now)
		reportScheduling(p.VMI, o)
	case !o.RivalsAsked && len(launcherpod.ExclusiveClaims(&o.VMI.Spec)) > 0:
		p.AskForRivals = true
	case len(o.Rivals) > 0:
		yieldOrWait(o, p)
	default:
		recordScheduled(p.VMI, o)
	}
}

func awaitPodsEnd(o Observed, p *Plan) {
	setPhase(p.VMI, v1.Scheduling, o.Now)
	message := fmt.Sprintf("waiting for the launcher pod %s to go before it is made again", o.Pod.Name)
	condition.Set(&p.VMI.Status.Conditions, notReady(message), o.Now)
}

// unspoken tells whether phase Scheduling may go unsaid: nothing had to be said of
// the VMI so far. The scheduler needs some milliseconds as a rule, and the pod,
// bound, takes the VMI to Scheduled in the first write that it gets.
func unspoken(o Observed) bool {
	return o.VMI.Status.Phase == v1.VmPhaseUnset && !placement.FilledByDataVolumes(o.Claims)
}

// soon is how long the scheduler may still be silent about the pod.
func soon(o Observed) time.Duration {
	if podCondition(o.Pod, corev1.PodScheduled) != nil {
		return 0
	}
	return o.Pod.CreationTimestamp.Add(schedulerPatience).Sub(o.Now)
}

// recordScheduled hands the VMI over to virt-handler on the pod's node.
func recordScheduled(vmi *v1.VirtualMachineInstance, o Observed) {
	setPhase(vmi, v1.Scheduling, o.Pod.CreationTimestamp.Time)
	setPhase(vmi, v1.Scheduled, o.Now)
	condition.Drop(&vmi.Status.Conditions, v1.VirtualMachineInstanceConditionType(corev1.PodScheduled))
	condition.Drop(&vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	condition.Set(&vmi.Status.Conditions, notReady(guestNotRunning), o.Now)
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	node := o.Pod.Spec.NodeName
	vmi.Labels[v1.NodeNameLabel] = node
	vmi.Status.NodeName = node
	vmi.Status.ActivePods = map[types.UID]string{o.Pod.UID: node}
	vmi.Status.RuntimeUser = layout.QEMUUser
	vmi.Status.QOSClass = new(qosClass(o.Pod))
	for i := range o.Pod.Spec.Containers {
		if c := &o.Pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			vmi.Status.LauncherContainerImageVersion = c.Image
		}
	}
}

// decideStarted looks after a VMI that is virt-handler's: only the end of its
// pod, and what keeps the pod's container from starting, are seen here.
func decideStarted(o Observed, p *Plan) {
	switch {
	case o.Pod == nil && !o.PodAsked:
		p.AskForPod = true
	case o.Pod == nil:
		decideVanished(o, p)
	case podFinished(o.Pod):
		finish(p.VMI, o, endOf(o.Pod))
	case o.Pod.DeletionTimestamp != nil, MarksNodeLost(o.Pod):
		reportInterrupted(o, p)
	case o.VMI.Status.Phase == v1.Scheduled && beingMade(o.Pod):
		reportPreparation(p, o)
	case o.VMI.Status.Phase == v1.Scheduled:
		reportContainer(p.VMI, o)
	}
}

// decideFinal deletes a pod that outlives its guest: virt-launcher ends with
// QEMU, so this covers one that never started it.
func decideFinal(o Observed, p *Plan) {
	if o.Pod == nil || podFinished(o.Pod) || o.Pod.DeletionTimestamp != nil {
		return
	}
	p.await(o.Now, phaseSince(o.VMI).Add(handlerPatience))
}

// decideDeletion ends a VMI that is to go, gracefully while a guest may run.
func decideDeletion(o Observed, p *Plan) {
	switch {
	case o.Pod == nil && !o.PodAsked:
		p.AskForPod = true
	case o.Pod == nil && started(o.VMI) && !o.VMI.IsFinal():
		if decideVanished(o, p) {
			dropFinalizers(p.VMI)
		}
	case o.Pod == nil:
		dropFinalizers(p.VMI)
	case podFinished(o.Pod):
		if !o.VMI.IsFinal() {
			finish(p.VMI, o, endOf(o.Pod))
		}
		// It can't run any more; its owner's end is its own.
		dropFinalizers(p.VMI)
	case o.Pod.DeletionTimestamp != nil && o.Pod.Spec.NodeName == "":
		// It gets no node any more, whatever else keeps its object.
		dropFinalizers(p.VMI)
	case o.Pod.DeletionTimestamp != nil:
	case o.VMI.Status.Phase == v1.Running:
		p.await(o.Now, o.VMI.DeletionTimestamp.Add(handlerPatience))
	default:
		p.DeletePod = true
	}
}

// await deletes the pod when the deadline has passed, or asks to look again then.
func (p *Plan) await(now, deadline time.Time) {
	if now.Before(deadline) {
		p.After = deadline.Sub(now)
		return
	}
	p.DeletePod = true
}

func dropFinalizers(vmi *v1.VirtualMachineInstance) {
	vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool {
		return f == v1.VirtualMachineInstanceFinalizer || f == v1.DeprecatedVirtualMachineInstanceFinalizer
	})
	if len(vmi.Finalizers) == 0 {
		vmi.Finalizers = nil
	}
}

// qosClass is the class that the kubelet will report. The API server fills it
// in at creation.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return corev1.PodQOSBurstable
}

func setPhase(vmi *v1.VirtualMachineInstance, phase v1.VirtualMachineInstancePhase, now time.Time) {
	if vmi.Status.Phase == phase {
		return
	}
	if len(vmi.Status.PhaseTransitionTimestamps) == 0 && phase != v1.Pending {
		// Pending is not worth a write of its own: it began with the object.
		stamp(vmi, v1.Pending, vmi.CreationTimestamp)
	}
	vmi.Status.Phase = phase
	stamp(vmi, phase, metav1.NewTime(now.Truncate(time.Second)))
}

func stamp(vmi *v1.VirtualMachineInstance, phase v1.VirtualMachineInstancePhase, at metav1.Time) {
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at})
}

// phaseSince is when the VMI reached its phase, or the zero time.
func phaseSince(vmi *v1.VirtualMachineInstance) time.Time {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == vmi.Status.Phase {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}

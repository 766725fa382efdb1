package vmicontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// sourcePatience is virt-handler's time to end the source's QEMU before the pod is deleted.
const sourcePatience = 10 * time.Second

// side is one of the two pods of a VMI that is or was migrated: the current one (Observed.Pod), or Observed.Other.
//
//	        completed, node switched                ended
//	source: current ────────────────> other ──────────────────> removed from activePods, deleted
//	target: other ──────────────────> current
//	          │ failed
//	          └──────> removed from activePods, deleted
type side struct {
	// named means that it is in status.activePods and may still run.
	pod              *corev1.Pod
	named            bool
	asked, nodeAsked bool
	need, needNode   Question
	node             *corev1.Node
	since            time.Time
	state            switchover.PodState
	silent           string // why a gone pod's node does not answer
}

func (d *decision) currentSide() side {
	o := &d.o
	return side{
		pod: o.Pod, asked: o.PodAsked, need: NeedPod, node: o.Node, nodeAsked: o.NodeAsked, needNode: NeedNode,
		named: len(d.uidsOn(o.VMI.Status.NodeName)) > 0, since: vmistatus.MissedSince(o.VMI, o.Now),
	}
}

func (d *decision) otherSide() side {
	o := &d.o
	s := side{
		pod: o.Other, asked: o.OtherAsked, need: NeedOther, node: o.OtherNode, nodeAsked: o.OtherNodeAsked, needNode: NeedOtherNode,
		named: len(d.uidsOn(launcherpod.OtherNode(o.VMI))) > 0, since: o.OtherMissed,
	}
	if s.named && s.pod != nil && launcherpod.BondOf(s.pod, o.VMI) != launcherpod.Chosen {
		// It is another pod with the same name.
		s.pod = nil
	}
	if s.since.IsZero() {
		s.since = o.Now
	}
	return s
}

func (d *decision) uidsOn(node string) []types.UID {
	var out []types.UID
	for uid, on := range d.o.VMI.Status.ActivePods {
		if on == node && node != "" {
			out = append(out, uid)
		}
	}
	return out
}

// setSideState returns false if the API server must be asked first.
func (d *decision) setSideState(s *side) bool {
	switch {
	case s.pod != nil && podstatus.Terminal(s.pod), !s.named:
		s.state = switchover.PodEnded
	case s.pod == nil && !s.asked:
		d.p.Needs = s.need
		return false
	case s.pod == nil && !s.nodeAsked:
		d.p.Needs = s.needNode
		return false
	case s.pod == nil:
		left, silent := guestTimeLeft(d.o.VMI, s.node, s.since, d.o.Now)
		if s.silent, s.state = silent, switchover.PodGoes; left <= 0 {
			s.state = switchover.PodEnded
		}
		d.requeueAfter(max(left, 0))
	case s.pod.DeletionTimestamp != nil:
		s.state = switchover.PodGoes
	default:
		s.state = switchover.PodRuns
	}
	return true
}

func (s *side) exit(arrives bool) switchover.Exit {
	if s.pod == nil || s.state != switchover.PodEnded {
		return switchover.Exit{}
	}
	return switchover.ExitOf(vmistatus.ExitOf(s.pod), arrives)
}

func (s *side) end(vmi *v1.VirtualMachineInstance) *vmistatus.End {
	if s.pod == nil {
		return vmistatus.EndOfPodGone()
	}
	return vmistatus.EndOfPod(vmi, s.pod)
}

// While status.activePods has both pods, the guest may be in either. A VMI with one pod costs no extra API reads.
func (d *decision) migrated() bool { return launcherpod.OtherName(d.o.VMI) != "" }

func (d *decision) arrived() bool { return launcherpod.Arrived(d.o.VMI) }

func (d *decision) decideMigrated() {
	current, other := d.currentSide(), d.otherSide()
	if !d.setSideState(&current) || !d.setSideState(&other) {
		return
	}
	source, target := &current, &other
	if d.arrived() {
		source, target = target, source
	}
	d.applyMigrationStep(source, target)
	d.deleteOther()
	switch {
	case d.o.VMI.DeletionTimestamp != nil:
		patience := d.o.VMI.DeletionTimestamp.Add(handlerPatience)
		if current.state == switchover.PodRuns {
			d.await(patience, &d.p.DeletePod)
		}
		if other.state == switchover.PodRuns {
			d.await(patience, &d.p.DeleteOther)
		}
		if d.facts.End != nil && current.state == switchover.PodEnded && other.state == switchover.PodEnded {
			dropFinalizers(d.p.VMI)
		}
	case d.facts.End == nil && d.facts.Migration.Arrived == nil:
		d.reportCurrent(&current)
	}
}

func (d *decision) applyMigrationStep(source, target *side) {
	vmi := d.o.VMI
	m, now := vmi.Status.MigrationState, &d.facts.Migration
	now.Of = m.MigrationUID
	step := switchover.DecideController(switchover.ControllerFacts{
		Record: switchover.RecordOf(vmi, m.MigrationUID),
		Source: switchover.Pod{State: source.state, Exit: source.exit(false)},
		Target: switchover.Pod{State: target.state, Exit: target.exit(true)},
	})
	switch step.Action {
	case switchover.ControllerRecordFailed:
		now.Failure = step.Reason
	case switchover.RecordAbort:
		now.Abort = true
	case switchover.DropSource:
		now.Ended = d.uidsOn(m.SourceNode)
	case switchover.DropTarget:
		now.Ended = d.uidsOn(m.TargetNode)
	case switchover.SwitchNode:
		d.switchNode(target.pod)
	case switchover.EndAsSource:
		d.facts.End = source.end(vmi)
	case switchover.EndAsTarget:
		if !d.arrived() {
			d.arriveVolumes()
		}
		d.facts.End = target.end(vmi)
	case switchover.EndAsLost:
		d.facts.End = vmistatus.EndOfMigration(step.Reason)
	}
	if !switchover.Open(m) {
		delete(d.p.VMI.Labels, v1.MigrationTargetNodeNameLabel)
	}
}

// The target's gate opens, so that Services route to it.
func (d *decision) switchNode(target *corev1.Pod) {
	m := d.o.VMI.Status.MigrationState
	d.facts.Migration.Arrived = &vmistatus.Arrival{Image: d.o.VMI.Status.LauncherContainerImageVersion, Volumes: hotplug.Arrive(d.o.VMI)}
	if target != nil {
		d.facts.Migration.Arrived.Image = computeImage(target)
		gate := podstatus.Condition(target, launcherpod.GuestGate)
		d.p.OpenGate = gate == nil || gate.Status != corev1.ConditionTrue
	}
	d.arriveVolumes()
	setLabel(d.p.VMI, v1.NodeNameLabel, m.TargetNode)
	delete(d.p.VMI.Annotations, evacuation.CordonAnnotation)
}

// arriveVolumes sets the spec's volumes to the claims that the guest writes to at the target, in the write of the arrival,
// as hotplug.Arrive does for the status. Later requests for copies belong to the next migration.
func (d *decision) arriveVolumes() {
	d.p.VMI.Spec = volumemigration.Arrive(&d.o.VMI.Spec, volumemigration.Of(d.o.VMI))
}

// deleteOther deletes the target pod of a failed migration, or the source pod of a completed one.
func (d *decision) deleteOther() {
	o, m := &d.o, d.o.VMI.Status.MigrationState
	switch {
	case o.Other == nil || o.Other.DeletionTimestamp != nil || launcherpod.BondOf(o.Other, o.VMI) == launcherpod.Foreign:
	case m != nil && m.Failed, d.arrived() && podstatus.Terminal(o.Other):
		d.p.DeleteOther = true
	case d.arrived() && m.EndTimestamp != nil:
		d.await(m.EndTimestamp.Add(sourcePatience), &d.p.DeleteOther)
	}
}

func (d *decision) reportCurrent(current *side) {
	switch {
	case current.state == switchover.PodEnded:
		// applyMigrationStep decides for the target.
	case current.pod == nil:
		pod := d.podFact(vmistatus.PodGone)
		pod.Since, pod.Silent = current.since, current.silent
		d.facts.Pod = vmistatus.Known(pod)
	case current.pod.DeletionTimestamp != nil, MarksNodeLost(current.pod):
		d.reportInterrupted()
	}
}

// otherEnded reports whether the VMI has no other pod that may run. settled is false if the API server must be asked.
func (d *decision) otherEnded() (ended, settled bool) {
	if launcherpod.OtherName(d.o.VMI) == "" {
		return true, true
	}
	other := d.otherSide()
	if !d.setSideState(&other) {
		return false, false
	}
	if other.state == switchover.PodRuns {
		d.await(d.o.VMI.DeletionTimestamp.Add(handlerPatience), &d.p.DeleteOther)
	}
	return other.state == switchover.PodEnded, true
}

// WithMigration returns the VMI with facts about a migration. The target's virt-handler finds the VMI by its label.
func WithMigration(vmi *v1.VirtualMachineInstance, m vmistatus.Migration, now time.Time) *v1.VirtualMachineInstance {
	out := withoutItsSpec(vmi)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{Now: now, Migration: m})
	if state := out.Status.MigrationState; m.Begin != nil && state != nil && state.MigrationUID == m.Begin.UID {
		setLabel(out, v1.MigrationTargetNodeNameLabel, m.Begin.TargetNode)
	}
	return out
}

package vmilifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/evacuation"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/switchover"
	"drydock.dev/drydock/internal/rules/vmistatus"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// sourcePatience is how long the source pod of a completed migration is left to virt-handler,
// which ends its QEMU, before it is deleted.
const sourcePatience = 10 * time.Second

// side is one of the two pods of a VMI that is migrated, or was. One is the VMI's current
// pod (Observed.Pod), and the other one Observed.Other:
//
//	        completed, node switched                ended
//	source: current ────────────────> other ──────────────────> out of activePods, deleted
//	target: other ──────────────────> current
//	          │ failed
//	          └──────> out of activePods, deleted
type side struct {
	// pod is nil when its object is gone, of which named says whether it may still run:
	// whether status.activePods has it.
	pod   *corev1.Pod
	named bool
	// asked and nodeAsked mean that the API server has been asked, as need and needNode ask.
	asked, nodeAsked bool
	need, needNode   Question
	node             *corev1.Node
	// since is when the pod was found to be gone.
	since time.Time
	// state is what follows from all that; silent is why the node of a pod that is gone
	// does not answer.
	state  switchover.PodState
	silent string
}

// currentSide is the pod that the guest is in, as the VMI says.
func (d *decision) currentSide() side {
	o := &d.o
	return side{
		pod: o.Pod, asked: o.PodAsked, need: NeedPod, node: o.Node, nodeAsked: o.NodeAsked, needNode: NeedNode,
		named: len(d.uidsOn(o.VMI.Status.NodeName)) > 0, since: vmistatus.MissedSince(o.VMI, o.Now),
	}
}

// otherSide is the other one.
func (d *decision) otherSide() side {
	o := &d.o
	s := side{
		pod: o.Other, asked: o.OtherAsked, need: NeedOther, node: o.OtherNode, nodeAsked: o.OtherNodeAsked, needNode: NeedOtherNode,
		named: len(d.uidsOn(launcherpod.OtherNode(o.VMI))) > 0, since: o.OtherMissed,
	}
	if s.named && s.pod != nil && launcherpod.BondOf(s.pod, o.VMI) != launcherpod.Chosen {
		// It is another pod of the name.
		s.pod = nil
	}
	if s.since.IsZero() {
		s.since = o.Now
	}
	return s
}

// uidsOn are the pods in status.activePods that are on a node.
func (d *decision) uidsOn(node string) []types.UID {
	var out []types.UID
	for uid, on := range d.o.VMI.Status.ActivePods {
		if on == node && node != "" {
			out = append(out, uid)
		}
	}
	return out
}

// settle finds out how a pod is. It reports false when something has to be asked first.
func (d *decision) settle(s *side) bool {
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
		left, silent := leftOf(d.o.VMI, s.node, s.since, d.o.Now)
		if s.silent, s.state = silent, switchover.PodGoes; left <= 0 {
			s.state = switchover.PodEnded
		}
		d.lookAgain(max(left, 0))
	case s.pod.DeletionTimestamp != nil:
		s.state = switchover.PodGoes
	default:
		s.state = switchover.PodRuns
	}
	return true
}

// exit is what virt-launcher has left of how QEMU ended in a pod. arrives means that the
// migration was to bring the guest there.
func (s *side) exit(arrives bool) switchover.Exit {
	if s.pod == nil || s.state != switchover.PodEnded {
		return switchover.Exit{}
	}
	return switchover.ExitOf(vmistatus.ExitOf(s.pod), arrives)
}

// end is how the VMI ends whose guest ended in the pod.
func (s *side) end(vmi *v1.VirtualMachineInstance) *vmistatus.End {
	if s.pod == nil {
		return vmistatus.EndOfPodGone()
	}
	return vmistatus.EndOfPod(vmi, s.pod)
}

// migrated reports whether the VMI's guest has been migrated, or is being: it may be in either of two
// pods as far as status.activePods names both, and costs no more than any other guest when it names one.
func (d *decision) migrated() bool { return launcherpod.OtherName(d.o.VMI) != "" }

// arrived reports whether the current pod is the target of the last migration, failed
// whether that has failed.
func (d *decision) arrived() bool { return launcherpod.Arrived(d.o.VMI) }

func (d *decision) failed() bool {
	m := d.o.VMI.Status.MigrationState
	return m != nil && m.Failed
}

// decideMigrated looks after a VMI that has, or had, two pods.
func (d *decision) decideMigrated() {
	current, other := d.currentSide(), d.otherSide()
	if !d.settle(&current) || !d.settle(&other) {
		return
	}
	source, target := &current, &other
	if d.arrived() {
		source, target = target, source
	}
	d.takeStep(source, target)
	d.deleteOther()
	switch {
	case d.o.VMI.DeletionTimestamp != nil:
		d.decideDeletionOfBoth(&current, &other)
	case d.facts.End == nil && d.facts.Migration.Arrived == nil:
		d.reportCurrent(&current)
	}
}

// takeStep does what follows for the migration.
func (d *decision) takeStep(source, target *side) {
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
	if m.Failed || m.Completed {
		delete(d.p.VMI.Labels, v1.MigrationTargetNodeNameLabel)
	}
}

// switchNode makes the target's node the guest's. What a Service sends to the guest goes to
// the target from then on.
func (d *decision) switchNode(target *corev1.Pod) {
	m := d.o.VMI.Status.MigrationState
	d.facts.Migration.Arrived = &vmistatus.Arrival{Image: d.o.VMI.Status.LauncherContainerImageVersion, Volumes: hotplug.Arrive(d.o.VMI)}
	if target != nil {
		d.facts.Migration.Arrived.Image = imageOf(target)
		gate := podstatus.Condition(target, launcherpod.GuestGate)
		d.p.OpenGate = gate == nil || gate.Status != corev1.ConditionTrue
	}
	d.arriveVolumes()
	setLabel(d.p.VMI, v1.NodeNameLabel, m.TargetNode)
	delete(d.p.VMI.Annotations, evacuation.CordonAnnotation)
}

// arriveVolumes has the VMI name the claims that the guest has written to since it ran at the target, in
// the write that says so; its status does as well (hotplug.Arrive). What is to be copied once that is written is for the next migration.
func (d *decision) arriveVolumes() {
	d.p.VMI.Spec = volumemigration.Arrive(&d.o.VMI.Spec, volumemigration.Of(d.o.VMI))
}

// deleteOther deletes the target pod of a migration that has failed, and the source pod of
// one that has completed: at once when it has ended.
func (d *decision) deleteOther() {
	o := &d.o
	switch {
	case o.Other == nil || o.Other.DeletionTimestamp != nil || launcherpod.BondOf(o.Other, o.VMI) == launcherpod.Foreign:
	case d.failed(), d.arrived() && podstatus.Terminal(o.Other):
		d.p.DeleteOther = true
	case d.arrived() && o.VMI.Status.MigrationState.EndTimestamp != nil:
		d.await(o.VMI.Status.MigrationState.EndTimestamp.Add(sourcePatience), &d.p.DeleteOther)
	}
}

// reportCurrent says what keeps a guest that is migrated, or was, from being Ready.
func (d *decision) reportCurrent(current *side) {
	switch {
	case current.state == switchover.PodEnded:
		// It is the target's turn.
	case current.pod == nil:
		pod := d.pod(vmistatus.PodGone)
		pod.Since, pod.Silent = current.since, current.silent
		d.facts.Pod = vmistatus.Known(pod)
	case current.pod.DeletionTimestamp != nil, MarksNodeLost(current.pod):
		d.reportInterrupted()
	}
}

// decideDeletionOfBoth ends a VMI that is to go while its guest may be in either of two
// pods.
func (d *decision) decideDeletionOfBoth(current, other *side) {
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
}

// otherEnded reports whether the VMI's other pod, if it has one, has ended. settled is false
// when something has to be asked first.
func (d *decision) otherEnded() (ended, settled bool) {
	if launcherpod.OtherName(d.o.VMI) == "" {
		return true, true
	}
	other := d.otherSide()
	if !d.settle(&other) {
		return false, false
	}
	if other.state == switchover.PodRuns {
		d.await(d.o.VMI.DeletionTimestamp.Add(handlerPatience), &d.p.DeleteOther)
	}
	return other.state == switchover.PodEnded, true
}

// TellOfMigration returns the VMI with what virt-controller has to say of a migration. The
// label by which the target's virt-handler finds the VMI comes with one that begins.
func TellOfMigration(vmi *v1.VirtualMachineInstance, m vmistatus.Migration, now time.Time) *v1.VirtualMachineInstance {
	out := withoutItsSpec(vmi)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{Now: now, Migration: m})
	if state := out.Status.MigrationState; m.Begin != nil && state != nil && state.MigrationUID == m.Begin.UID {
		setLabel(out, v1.MigrationTargetNodeNameLabel, m.Begin.TargetNode)
	}
	return out
}

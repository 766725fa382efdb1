package switchover_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// virt-controller's writes are not modeled: its two loops decide on objects that are made of the state, and the record
// is read from their VMI. The loop of VMIs (vmicontroller.Decide) calls DecideController, and the loop of migrations
// (migration.Decide) gives up canceled migrations. Both delete pods.

// sight is the view of a virt-controller.
type sight struct {
	vmi    switchover.Record
	cancel bool
	pods   [2]pod
	nodes  [2]node
	// exits are the exits of visible pods; alive says of deleted pods whether their processes run.
	exits [2]switchover.Exit
	alive [2]bool
	// quiet means that the source's virt-handler reports nothing.
	quiet bool
}

func (s *state) sight() sight {
	v := sight{vmi: s.vmi, cancel: s.cancel, pods: s.pods, nodes: s.nodes, quiet: !s.handlers[source].up || s.nodes[source] != answers}
	for i, p := range s.pods {
		if p.final && !p.gone {
			v.exits[i] = s.exits[i]
		}
		v.alive[i] = p.gone && s.alive(side(i))
	}
	return v
}

// podSeen is a pod as DecideController gets it.
func (v *sight) podSeen(i side) switchover.Pod {
	p := v.pods[i]
	switch {
	case p.final && !p.gone:
		return switchover.Pod{State: switchover.PodEnded, Exit: v.exits[i]}
	case p.gone && (v.nodes[i] == fenced || v.nodes[i] == answers && !v.alive[i]):
		// Its last exit is gone with it.
		return switchover.Pod{State: switchover.PodEnded}
	case p.going():
		return switchover.Pod{State: switchover.PodGoes}
	}
	return switchover.Pod{State: switchover.PodRuns}
}

// write is a loop's reaction to its view: it patches the VMI, then deletes pods.
type write struct {
	loop    string
	by      string
	vmi     switchover.Record
	deletes [2]bool
	// lost means that the VMI ends because its guest is lost, letsGo that the VMI loses its finalizer. abandons means
	// that the migration fails without a change in the VMI.
	lost, letsGo, abandons bool
	// moved means that the VMI names the claim of the guest's copied disk.
	moved bool
}

// loops are virt-controller's, with a cache of their decisions. An exploration often comes to the same view.
type loops map[sight][]write

const (
	ofVMIs       = "the loop of VMIs"
	ofMigrations = "the loop of migrations"
)

// all returns the possible writes of both loops, at once or after their patience.
func (l loops) all(v sight) []write {
	known, ok := l[v]
	if ok {
		return known
	}
	var out []write
	for _, late := range []bool{false, true} {
		out = append(out, vmiLoop(&v, late), migrationLoop(&v, late))
	}
	l[v] = out
	return out
}

const (
	ofSource types.UID = "one"
	ofTarget types.UID = "two"
	nodeA              = "a"
	nodeB              = "b"
	aMove    types.UID = "m"
)

// now is the time of every decision. Events happened justNow, or long ago for patient loops.
var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func before(late bool) metav1.Time {
	if late {
		return metav1.NewTime(now.Add(-24 * time.Hour))
	}
	return metav1.NewTime(now)
}

// object returns the VMI with a record.
func (v *sight) object(late bool) *v1.VirtualMachineInstance {
	r, at := v.vmi, before(late)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "vm", UID: "u", Finalizers: []string{v1.VirtualMachineInstanceFinalizer}, Labels: map[string]string{},
	}}
	set := func(is bool, do func()) {
		if is {
			do()
		}
	}
	m := &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: aMove, SourceNode: nodeA, SourcePod: string(ofSource), TargetNode: nodeB, TargetPod: string(ofTarget),
		Failed: r.Failed, Completed: r.Completed, AbortRequested: r.AbortRequested,
	}
	vmi.Status = v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: nodeA, MigrationState: m, ActivePods: map[types.UID]string{}}
	set(r.Addressed, func() { m.TargetNodeAddress = "10.0.0.2:1" })
	set(r.Started, func() { m.StartTimestamp, m.Mode = &at, v1.MigrationPreCopy })
	set(r.PostCopy, func() { m.Mode = v1.MigrationPostCopy })
	set(r.AbortFailed, func() { m.AbortStatus = v1.MigrationAbortFailed })
	set(r.Failed || r.Completed, func() { m.EndTimestamp = &at })
	set(r.Failed && !r.TargetNamed, func() { m.Completed = true }) // it is over in the terms of KubeVirt's API
	set(r.Switched, func() { vmi.Status.NodeName = nodeB })
	set(r.SourceNamed, func() { vmi.Status.ActivePods[ofSource] = nodeA })
	set(r.TargetNamed, func() { vmi.Status.ActivePods[ofTarget] = nodeB })
	set(r.TargetNamed && !r.Switched, func() { vmi.Labels[v1.MigrationTargetNodeNameLabel] = nodeB })
	set(r.Deleting, func() { vmi.DeletionTimestamp = &at })
	set(r.Final, func() { vmi.Status.Phase = v1.Failed })
	vmi.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: vmi.Status.Phase, PhaseTransitionTimestamp: at}}
	if current := v.current(); v.pods[current].gone {
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse,
			Reason: v1.PodNotExistsReason, LastProbeTime: metav1.NewTime(v.missed(current, late))}}
	}
	if r.Started && !v.quiet {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: vmistatus.MigrationProgress, Status: corev1.ConditionTrue, LastProbeTime: metav1.NewTime(now)})
	}
	copying := volumemigration.Move{Volume: "root", From: "old", To: "new"}
	vmi.Spec.Volumes = []v1.Volume{{Name: copying.Volume, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: copying.From}}}}
	vmi.Status.MigratedVolumes = volumemigration.Write([]volumemigration.Move{copying})
	set(r.Switched, func() { vmi.Spec.Volumes[0].DataVolume.Name, vmi.Status.MigratedVolumes = copying.To, nil })
	if got := switchover.RecordOf(vmi, aMove); got != r {
		panic(fmt.Sprintf("the VMI that is made for the record %+v has the record %+v", r, got))
	}
	return vmi
}

// current is the side that the VMI names.
func (v *sight) current() side {
	if v.vmi.Completed && v.vmi.Switched {
		return target
	}
	return source
}

// missed is the time since when a pod is gone. A node that answers ends the rest of it in time.
func (v *sight) missed(i side, late bool) time.Time {
	return before(late && !v.alive[i]).Time
}

// shown returns a pod's object, or nil when it is gone.
func (v *sight) shown(i side, late bool) *corev1.Pod {
	p := v.pods[i]
	if p.gone {
		return nil
	}
	uid, on := ofSource, nodeA
	labels := map[string]string{v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: "u"}
	if i == target {
		uid, on, labels[v1.MigrationJobLabel] = ofTarget, nodeB, string(aMove)
	}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid, Labels: labels, OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}},
		Spec:       corev1.PodSpec{NodeName: on}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if p.deleting {
		at := before(late)
		object.DeletionTimestamp = &at
	}
	if p.final {
		object.Status.Phase = corev1.PodFailed
		object.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137, Message: words(i, v.exits[i])}}}}
	}
	return object
}

// words is virt-launcher's message about an exit.
func words(i side, exit switchover.Exit) string {
	if !exit.Known {
		return ""
	}
	said := launch.Exit{Reason: launch.ReasonCrashed}
	if exit.Sent {
		said.Reason = launch.ReasonMigrated
	}
	if i == target {
		said.Incoming = launch.IncomingNeverRan
		if exit.Ran {
			said.Incoming = launch.IncomingRan
		}
	}
	if got := switchover.ExitOf(&said, i == target); got != exit {
		panic(fmt.Sprintf("the words for the end %+v are read as %+v", exit, got))
	}
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// hosts returns a node's object.
func (v *sight) hosts(i side) *corev1.Node {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	object := &corev1.Node{}
	if v.nodes[i] != answers {
		ready.Status = corev1.ConditionUnknown
	}
	if v.nodes[i] == fenced {
		object.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	}
	object.Status.Conditions = []corev1.NodeCondition{ready}
	return object
}

// vmiLoop is the loop of VMIs.
func vmiLoop(v *sight, late bool) write {
	current := v.current()
	other := target - current
	from := v.object(late)
	plan := vmicontroller.Decide(vmicontroller.Observed{
		VMI: from, Now: now, RivalsAsked: true, VMAsked: true, WarningAsked: true,
		Pod: v.shown(current, late), PodAsked: true, Node: v.hosts(current), NodeAsked: true,
		Other: v.shown(other, late), OtherAsked: true, OtherMissed: v.missed(other, late), OtherNode: v.hosts(other), OtherNodeAsked: true,
	})
	if plan.Needs != "" || plan.CreatePod {
		panic(fmt.Sprintf("of %+v it asks for %q, or makes a pod", *v, plan.Needs))
	}
	w := write{vmi: switchover.RecordOf(plan.VMI, aMove), lost: plan.VMI.Status.Reason == vmistatus.ReasonMigrationLost, letsGo: len(plan.VMI.Finalizers) == 0}
	w.moved = plan.VMI.Spec.Volumes[0].DataVolume.Name == "new"
	w.deletes[current], w.deletes[other] = plan.DeletePod, plan.DeleteOther
	w.loop, w.by = ofVMIs, ofVMIs+v.changes(w)
	return w
}

// migrationLoop is the loop of migrations.
func migrationLoop(v *sight, late bool) write {
	from := v.object(late)
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "move", UID: aMove, Finalizers: []string{v1.VirtualMachineInstanceMigrationFinalizer},
	}}
	m.Spec.VMIName = from.Name
	m.Status.Phase = v1.MigrationPreparingTarget
	m.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
		{Phase: v1.MigrationPreparingTarget, PhaseTransitionTimestamp: metav1.NewTime(now)}}
	if v.vmi.Started {
		m.Status.Phase = v1.MigrationRunning
		m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: v1.MigrationRunning, PhaseTransitionTimestamp: before(late)})
	}
	if v.vmi.AbortRequested {
		m.Status.Conditions = []v1.VirtualMachineInstanceMigrationCondition{{Type: v1.VirtualMachineInstanceMigrationAbortRequested,
			Status: corev1.ConditionTrue, LastTransitionTime: before(late)}}
	}
	if v.cancel {
		at := before(late)
		m.DeletionTimestamp = &at
	}
	plan := migration.Decide(migration.Observed{
		Migration: m, VMI: from, VMIAsked: true, Now: now, TargetName: string(ofTarget),
		Source: v.shown(source, late), SourceAsked: true, Target: v.shown(target, late), TargetAsked: true,
	})
	if plan.Needs != "" || plan.CreateTarget || plan.VMI.Begin != nil {
		panic(fmt.Sprintf("of %+v it asks for %q, or begins", *v, plan.Needs))
	}
	to := vmicontroller.WithMigration(from, vmistatus.Migration{Of: aMove, Abort: plan.VMI.Abort, Failure: plan.VMI.Failure}, now)
	w := write{vmi: switchover.RecordOf(to, aMove)}
	w.deletes[target] = plan.DeleteTarget
	w.abandons = plan.Migration.Status.Phase == v1.MigrationFailed && !v.vmi.Failed && !w.vmi.Failed && !v.vmi.Final
	w.loop, w.by = ofMigrations, ofMigrations+v.changes(w)
	return w
}

// changes formats a write.
func (v *sight) changes(w write) string {
	var words []string
	was, is := v.vmi, w.vmi
	for _, c := range []struct {
		word    string
		was, is bool
	}{
		{"failed", was.Failed, is.Failed}, {"abort", was.AbortRequested, is.AbortRequested}, {"source dropped", !was.SourceNamed, !is.SourceNamed},
		{"target dropped", !was.TargetNamed, !is.TargetNamed}, {"switched", was.Switched, is.Switched}, {"the end", was.Final, is.Final},
		{"its guest lost", was.Final, w.lost}, {"that the migration is over", false, w.abandons},
	} {
		if c.is && !c.was {
			words = append(words, c.word)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " writes: " + strings.Join(words, ", ")
}

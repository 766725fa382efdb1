package migration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// noon is the time when the target pod was made and the VMI handed over, unless a test says otherwise.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const (
	sourceName, sourceUID = "virt-launcher-vm-src", "source"
	targetName, targetUID = "virt-launcher-vm-tgt", "target"
)

type edit func(*Observed)

// observed is a migration that may begin, of a VMI that runs on node1: no step has been done yet.
func observed(edits ...edit) Observed {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "vm", UID: "vmi"}}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node1"
	vmi.Status.ActivePods = map[types.UID]string{sourceUID: "node1"}
	o := Observed{
		Migration: &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m", UID: "m", Finalizers: []string{v1.VirtualMachineInstanceMigrationFinalizer}},
			Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "vm"},
		},
		VMI: vmi, Source: podOf(vmi, sourceName, sourceUID, "node1"), TargetName: targetName, Choice: Choice{May: true}, Now: noon,
	}
	for _, e := range edits {
		e(&o)
	}
	return o
}

func podOf(vmi *v1.VirtualMachineInstance, name string, uid types.UID, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "lab", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(noon),
		Labels:          map[string]string{v1.CreatedByLabel: string(vmi.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)},
	}}
	pod.Spec.NodeName = node
	return pod
}

// From PreparingTarget on the phase is since noon, pending since an hour before.
func in(phase v1.VirtualMachineInstanceMigrationPhase) edit {
	return func(o *Observed) {
		o.Migration.Status.Phase = phase
		o.Migration.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
			{Phase: v1.MigrationPending, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
			{Phase: v1.MigrationPreparingTarget, PhaseTransitionTimestamp: metav1.NewTime(noon)},
		}
	}
}

// target adds a target pod on a node, or "" for none yet.
func target(node string, edits ...func(*corev1.Pod)) edit {
	return func(o *Observed) {
		vmi := o.VMI
		if vmi == nil {
			vmi = observed().VMI
		}
		o.Target = podOf(vmi, targetName, targetUID, node)
		o.Target.Labels[v1.MigrationJobLabel] = "m"
		for _, e := range edits {
			e(o.Target)
		}
	}
}

func runs(pod *corev1.Pod) {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func waits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func sidecarWaits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: layout.ConsoleLogContainer,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func unschedulable(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available"}}
}

func ended(pod *corev1.Pod) {
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on memory."
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(noon)) }

// volume gives the VMI a hotplugged volume in a phase.
func volume(phase v1.VolumePhase) edit {
	return func(o *Observed) {
		o.VMI.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}}}
	}
}

// stuck sets the reason why the target's attachment pods do not run.
func stuck(why string) edit {
	return func(o *Observed) { o.ObstacleAsked, o.Obstacle = true, why }
}

const changing = "its hotplugged volumes (data) are being plugged or unplugged"

// told is a VMI that was handed over with the migration, to node2.
func told(edits ...func(*v1.VirtualMachineInstanceMigrationState)) edit {
	return func(o *Observed) {
		o.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourceNode: "node1", SourcePod: sourceName, TargetNode: "node2", TargetPod: targetName}
		o.VMI.Status.ActivePods[targetUID] = "node2"
		o.VMI.Labels = map[string]string{v1.MigrationTargetNodeNameLabel: "node2"}
		for _, e := range edits {
			e(o.VMI.Status.MigrationState)
		}
	}
}

type state = v1.VirtualMachineInstanceMigrationState

func addressed(ms *state) { ms.TargetNodeAddress = "10.0.0.2:4444" }
func begun(ms *state)     { ms.StartTimestamp = new(metav1.NewTime(noon)) }
func failed(ms *state)    { ms.Failed, ms.FailureReason = true, "the stream was cut" }
func completed(ms *state) { ms.Completed = true }
func aborting(ms *state)  { ms.AbortRequested = true }
func another(ms *state)   { ms.MigrationUID, ms.TargetPod = "other", "virt-launcher-vm-oth" }

func cancel(o *Observed)              { o.Migration.DeletionTimestamp = new(metav1.NewTime(noon)) }
func asked(o *Observed)               { o.VMIAsked, o.TargetAsked, o.SourceAsked = true, true, true }
func targetAsked(o *Observed)         { o.TargetAsked = true }
func vmiAsked(o *Observed)            { o.VMIAsked = true }
func noVMI(o *Observed)               { o.VMI, o.Source = nil, nil }
func noFinalizer(o *Observed)         { o.Migration.Finalizers = nil }
func vmiDeleted(o *Observed)          { o.VMI.DeletionTimestamp = new(metav1.NewTime(noon)) }
func vmiEnded(o *Observed)            { o.VMI.Status.Phase = v1.Succeeded }
func onTarget(o *Observed)            { o.VMI.Status.NodeName = "node2" }
func source(e func(*corev1.Pod)) edit { return func(o *Observed) { e(o.Source) } }
func later(d time.Duration) edit      { return func(o *Observed) { o.Now = noon.Add(d) } }

func warned(reason, message string) edit {
	return func(o *Observed) {
		o.WarningAsked, o.Warning = true, &objectevent.Warning{Reason: reason, Message: message}
	}
}

func annotated(name, value string) edit {
	return func(o *Observed) { o.Migration.Annotations = map[string]string{name: value} }
}

// says gives the migration a condition.
func says(kind v1.VirtualMachineInstanceMigrationConditionType, reason, message string) edit {
	return func(o *Observed) {
		o.Migration.Status.Conditions = append(o.Migration.Status.Conditions, v1.VirtualMachineInstanceMigrationCondition{Type: kind, Status: "True", Reason: reason, Message: message})
	}
}

// describe lists a plan's effects, one per line.
func describe(o Observed, p Plan) []string {
	var lines []string
	add := func(is bool, format string, args ...any) {
		if is {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(p.Needs != "", "needs %s", p.Needs)
	add(p.CreateTarget, "create the target pod")
	if b := p.VMI.Begin; b != nil {
		add(true, "begin %s from %s/%s to %s/%s (%s), policy %q, %v", b.UID, b.SourceNode, b.SourcePod, b.TargetNode, b.TargetPod, b.TargetPodUID, b.PolicyName, *b.Configuration.ParallelMigrationsPerCluster)
	}
	add(p.VMI.Abort, "abort")
	add(p.VMI.Failure != "", "failure: %s", p.VMI.Failure)
	before, after := o.Migration.Status, p.Migration.Status
	for _, t := range after.PhaseTransitionTimestamps[len(before.PhaseTransitionTimestamps):] {
		add(true, "enter %s", t.Phase)
		if !t.PhaseTransitionTimestamp.Time.Equal(o.Now) {
			lines = append(lines, "at another time")
		}
	}
	if after.Phase != before.Phase && (len(lines) == 0 || !slices.Contains(lines, "enter "+string(after.Phase))) {
		lines = append(lines, "without a time")
	}
	for _, c := range after.Conditions {
		if !slices.Contains(before.Conditions, c) {
			add(true, "%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, c := range before.Conditions {
		add(!slices.ContainsFunc(after.Conditions, func(a v1.VirtualMachineInstanceMigrationCondition) bool { return a.Type == c.Type }), "no %s any more", c.Type)
	}
	lines = append(lines, describeState(before.MigrationState, after.MigrationState)...)
	add(p.DeleteTarget, "delete the target pod")
	add(len(p.Migration.Finalizers) < len(o.Migration.Finalizers), "drop the finalizer")
	add(p.After != 0, "look again after %v", p.After)
	return lines
}

func describeState(before, after *state) []string {
	if cmp.Equal(before, after) {
		return nil
	}
	line := fmt.Sprintf("state of %s %s -> %s/%s", after.MigrationUID, after.SourceNode, after.TargetNode, after.TargetPod)
	if after.Failed {
		line += " failed"
	}
	if after.Completed {
		line += " completed"
	}
	if after.AbortRequested {
		line += " abort " + string(after.AbortStatus)
	}
	if after.EndTimestamp != nil {
		line += " at " + after.EndTimestamp.UTC().Format("15:04:05")
	}
	if after.FailureReason != "" {
		line += ": " + after.FailureReason
	}
	return []string{line}
}

// situation has an observation and the expected plan.
type situation struct {
	o    Observed
	want []string
}

func check(t *testing.T, situations map[string]situation) {
	t.Helper()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			s.o.Configuration.ParallelMigrationsPerCluster = new(uint32(5))
			copied := *s.o.Migration.DeepCopy()
			plan := Decide(s.o)
			if diff := cmp.Diff(s.want, describe(s.o, plan)); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
			if diff := cmp.Diff(copied, *s.o.Migration); diff != "" {
				t.Errorf("the decision has changed what it was made on:\n%s", diff)
			}
		})
	}
}

func lines(text ...string) []string { return text }

const (
	cancelText = "the migration was canceled: its object was deleted"
)

func TestBeforeTheTargetPod(t *testing.T) {
	limit := Choice{Reason: ReasonNodeLimit, Message: "as many leave node1 as may"}
	back := Choice{Reason: ReasonBackOff, Message: "2 have failed", After: 7 * time.Second}
	stranger := func(e func(*v1.VirtualMachineInstance)) edit { return func(o *Observed) { e(o.VMI) } }
	check(t, map[string]situation{
		"one whose turn it is": {observed(), lines("create the target pod", "enter Pending", "enter Scheduling")},
		"one that has waited": {observed(in(v1.MigrationPending), says(ConditionWaiting, "NodeLimit", "as many")),
			lines("create the target pod", "enter Scheduling", "no drydock.dev/Waiting any more")},
		"one that has to wait": {observed(func(o *Observed) { o.Choice = limit }),
			lines("enter Pending", "drydock.dev/Waiting=True NodeLimit: as many leave node1 as may")},
		"one that backs off": {observed(in(v1.MigrationPending), func(o *Observed) { o.Choice = back }),
			lines("drydock.dev/Waiting=True BackOff: 2 have failed", "look again after 7s")},
		"another migration of the VMI is going on": {observed(told(another)),
			lines("enter Pending", "drydock.dev/Waiting=True AnotherMigration: another migration of the VMI has not ended yet")},
		"another migration of the VMI has arrived just now": {observed(told(another, completed), source(ended)),
			lines("enter Pending", "drydock.dev/Waiting=True AnotherMigration: another migration of the VMI has not ended yet")},
		"another one has failed": {observed(told(another, failed), func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("create the target pod", "enter Pending", "enter Scheduling")},
		"the pod that the last one came from has not ended": {observed(told(another, completed), func(o *Observed) { o.VMI.Status.MigrationState.TargetNode = "node1" }),
			lines("enter Pending", "drydock.dev/Waiting=True EarlierMigration: the other launcher pod of the VMI's last migration has not ended yet")},
		"the API server does not let the pod be made": {observed(func(o *Observed) { o.Refusal = "exceeded quota: pods" }),
			lines("enter Pending", "migrationRejectedByResourceQuota=True TargetPodRefused: exceeded quota: pods")},
		"it still does not": {observed(in(v1.MigrationPending), says(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, "TargetPodRefused", "exceeded quota: pods"),
			func(o *Observed) { o.Refusal = "exceeded quota: pods" }), nil},
		"now it does": {observed(in(v1.MigrationPending), says(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, "TargetPodRefused", "exceeded quota: pods")),
			lines("create the target pod", "enter Scheduling", "no migrationRejectedByResourceQuota any more")},
		"what was refused has to wait again": {observed(in(v1.MigrationPending), says(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, "TargetPodRefused", "exceeded"),
			func(o *Observed) { o.Choice = limit }),
			lines("drydock.dev/Waiting=True NodeLimit: as many leave node1 as may", "no migrationRejectedByResourceQuota any more")},
		"what waited is refused": {observed(in(v1.MigrationPending), says(ConditionWaiting, "NodeLimit", "as many"), func(o *Observed) { o.Refusal = "exceeded" }),
			lines("migrationRejectedByResourceQuota=True TargetPodRefused: exceeded", "no drydock.dev/Waiting any more")},
		"no VMI is shown": {observed(noVMI), lines("needs the VMI")},
		"there is no VMI": {observed(noVMI, vmiAsked, targetAsked),
			lines("enter Failed", "state of m  -> / failed completed at 12:00:00: the VMI vm does not exist (any more)", "drop the finalizer")},
		"there is no VMI, and the target pod has not been asked for": {observed(noVMI, vmiAsked), lines("needs the target pod")},
		"the guest's pod is not shown":                               {observed(func(o *Observed) { o.Source = nil }), lines("needs the pod that the guest runs in")},
		"the guest's pod is gone": {observed(asked, func(o *Observed) { o.Source = nil }),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: the launcher pod of the VMI is gone", "drop the finalizer")},
		"a pod that is not the guest's has its name": {observed(asked, func(o *Observed) { o.Source.UID = "new" }),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: the launcher pod of the VMI is gone", "drop the finalizer")},
		"the guest's pod has ended": {observed(asked, source(ended)),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: the launcher pod virt-launcher-vm-src has ended, and the guest with it", "drop the finalizer")},
		"the guest's pod is being deleted": {observed(asked, source(deleted)),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: the launcher pod virt-launcher-vm-src is being deleted, and the guest ends with it", "drop the finalizer")},
		"the guest has not started yet as a cache has it": {observed(stranger(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduled })), lines("needs the VMI")},
		"the guest has not started yet": {observed(asked, stranger(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduled })),
			lines("enter Pending", "drydock.dev/Waiting=True GuestStarting: the guest has not started yet")},
		"the guest has not started yet, and is not to migrate": {observed(asked, stranger(func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Phase = v1.Scheduled
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "cannot migrate VMI: it has a disk of its own"}}
		})), lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: cannot migrate VMI: it has a disk of its own", "drop the finalizer")},
		"the VMI can't migrate as a cache has it, which may be old":             {observed(vmiEnded), lines("needs the VMI")},
		"the guest's pod has ended as a cache has it":                           {observed(source(ended)), lines("needs the VMI")},
		"the VMI can't migrate, and whether there is a target pod is not known": {observed(vmiEnded, vmiAsked), lines("needs the target pod")},
		"nobody has chosen yet":                                                 {observed(vmiAsked, func(o *Observed) { o.Choice = Choice{} }), lines("enter Pending")},
		"it names another cluster to send to": {observed(asked, func(o *Observed) { o.Migration.Spec.SendTo = &v1.VirtualMachineInstanceMigrationSource{} }),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: "+NotBetweenClusters, "drop the finalizer")},
		"it names another cluster to receive from": {observed(asked, func(o *Observed) { o.Migration.Spec.Receive = &v1.VirtualMachineInstanceMigrationTarget{} }),
			lines("enter Failed", "state of m node1 -> / failed completed at 12:00:00: "+NotBetweenClusters, "drop the finalizer")},
		"it is canceled while it waits": {observed(asked, in(v1.MigrationPending), cancel, later(time.Minute)),
			lines("enter Failed", "migrationAbortRequested=True AbortRequested: "+cancelText,
				"state of m node1 -> / failed completed abort Succeeded at 12:01:00: "+cancelText, "drop the finalizer")},
		"it is canceled, and whether there is a target pod is not known": {observed(cancel, vmiAsked), lines("needs the target pod")},
		"another keeps the object": {observed(asked, cancel, func(o *Observed) { o.Migration.Finalizers = append(o.Migration.Finalizers, "example.com/mine") }),
			lines("enter Failed", "migrationAbortRequested=True AbortRequested: "+cancelText,
				"state of m node1 -> / failed completed abort Succeeded at 12:00:00: "+cancelText, "drop the finalizer")},
	})
}

func TestWhatAnotherFinalizerKeepsIsLeftToIt(t *testing.T) {
	for name, c := range map[string]struct{ finalizers, want []string }{
		"it is the only one":    {[]string{v1.VirtualMachineInstanceMigrationFinalizer}, nil},
		"there is another, too": {[]string{"example.com/mine", v1.VirtualMachineInstanceMigrationFinalizer}, []string{"example.com/mine"}},
	} {
		o := observed(asked, cancel, func(o *Observed) { o.Migration.Finalizers = c.finalizers })
		if diff := cmp.Diff(c.want, Decide(o).Migration.Finalizers); diff != "" {
			t.Errorf("%s: want, got:\n%s", name, diff)
		}
	}
}

func TestWhileTheTargetPodStarts(t *testing.T) {
	const node1 = "state of m node1 -> "
	scheduling := in(v1.MigrationScheduling)
	noNode := "the scheduler finds no node for the target pod virt-launcher-vm-tgt: 0/2 nodes are available"
	accelerated := func(is corev1.ConditionStatus) func(*Observed) {
		return func(o *Observed) {
			o.VMI.Status.Conditions = append(o.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: vmistatus.Accelerated, Status: is})
		}
	}
	selecting := func(o *Observed) { o.Migration.Spec.AddedNodeSelector = map[string]string{"zone": "b", "disk": "fast"} }
	check(t, map[string]situation{
		"the pod was made and nothing more": {observed(in(v1.MigrationPending), target("")), lines("enter Scheduling", "look again after 15m0s")},
		"the scheduler has not looked":      {observed(scheduling, target(""), later(time.Minute)), lines("look again after 14m0s")},
		"the scheduler says that it has a node for it": {observed(scheduling, target("", func(p *corev1.Pod) { unschedulable(p); p.Status.Conditions[0].Status = "True" })),
			lines("look again after 15m0s")},
		"the scheduler never looks": {observed(asked, scheduling, target(""), later(15*time.Minute)),
			lines("enter Failed", node1+"/virt-launcher-vm-tgt failed completed at 12:15:00: the scheduler has not found a node for the target pod virt-launcher-vm-tgt, 15m0s after it was made", "delete the target pod")},
		"the scheduler finds none": {observed(scheduling, target("", unschedulable), later(time.Minute)),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode, "look again after 4m0s")},
		"none is what the migration asks for": {observed(scheduling, selecting, target("", unschedulable)),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode+" (the migration's addedNodeSelector asks for disk=fast,zone=b)", "look again after 5m0s")},
		"none runs guests with KVM, as this one does": {observed(scheduling, target("", unschedulable), accelerated("True")),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode+" (the guest runs with KVM, so its node must be labeled drydock.dev/kvm=usable)", "look again after 5m0s")},
		"none emulates guests, as this one is": {observed(scheduling, selecting, target("", unschedulable), accelerated("False")),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode+" (the migration's addedNodeSelector asks for disk=fast,zone=b)"+
				" (the guest is emulated, so its node must not be labeled drydock.dev/kvm=usable)", "look again after 5m0s")},
		"the scheduler finds none for too long": {observed(asked, scheduling, says(ConditionWaiting, "Unschedulable", noNode), target("", unschedulable), later(5*time.Minute)),
			lines("enter Failed", "no drydock.dev/Waiting any more", node1+"/virt-launcher-vm-tgt failed completed at 12:05:00: "+noNode+", 5m0s after it was made", "delete the target pod")},
		"almost for too long": {observed(scheduling, says(ConditionWaiting, "Unschedulable", noNode), target("", unschedulable), later(5*time.Minute-time.Second)),
			lines("look again after 1s")},
		"it has come to the guest's node": {observed(asked, scheduling, target("node1", runs)),
			lines("enter Failed", node1+"node1/virt-launcher-vm-tgt failed completed at 12:00:00: the target pod virt-launcher-vm-tgt has come to node node1, which the guest is on already", "delete the target pod")},
		"the container is being made": {observed(scheduling, target("node2"), later(3*time.Second)), lines("look again after 7s")},
		"it takes a while":            {observed(scheduling, target("node2"), later(10*time.Second)), lines("needs the target pod's events")},
		"nobody complains": {observed(scheduling, target("node2", waits("ContainerCreating", "")), func(o *Observed) { o.WarningAsked = true }, later(time.Minute)),
			lines("look again after 20s")},
		"somebody complains of something else": {observed(scheduling, target("node2"), warned("Unhealthy", "no"), later(time.Minute)), lines("look again after 20s")},
		"the kubelet complains": {observed(scheduling, target("node2"), warned("FailedMount", "no such volume"), later(time.Minute)),
			lines("drydock.dev/Waiting=True FailedMount: no such volume", "look again after 20s")},
		"it complains of a sandbox": {observed(scheduling, target("node2"), warned("FailedCreatePodSandBox", "sandbox 1"), later(time.Minute)),
			lines("drydock.dev/Waiting=True FailedCreatePodSandBox: sandbox 1", "look again after 20s")},
		"it complains of the same in other words": {observed(scheduling, says(ConditionWaiting, "ErrImagePull", "old"), target("node2", waits("ErrImagePull", "new"))),
			lines("drydock.dev/Waiting=True ErrImagePull: new", "look again after 5m0s")},
		"it complains of another sandbox": {observed(scheduling, says(ConditionWaiting, "FailedCreatePodSandBox", "sandbox 1"), target("node2"), warned("FailedCreatePodSandBox", "sandbox 2"), later(time.Minute)),
			lines("look again after 20s")},
		"it complains of a sandbox after something else": {observed(scheduling, says(ConditionWaiting, "FailedMount", "no such volume"), target("node2"), warned("FailedCreatePodSandBox", "sandbox 2"), later(time.Minute)),
			lines("drydock.dev/Waiting=True FailedCreatePodSandBox: sandbox 2", "look again after 20s")},
		"the complaint is over": {observed(scheduling, says(ConditionWaiting, "FailedMount", "no such volume"), target("node2"), func(o *Observed) { o.WarningAsked = true }, later(time.Minute)),
			lines("no drydock.dev/Waiting any more", "look again after 20s")},
		"it ends soon": {observed(scheduling, target("node2"), func(o *Observed) { o.WarningAsked = true }, later(15*time.Minute-time.Second)), lines("look again after 1s")},
		"it never runs": {observed(asked, scheduling, target("node2"), func(o *Observed) { o.WarningAsked = true }, later(15*time.Minute)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:15:00: the target pod virt-launcher-vm-tgt does not run on node node2, 15m0s after it was made", "delete the target pod")},
		"it never runs, and the kubelet says why": {observed(asked, scheduling, target("node2"), warned("FailedMount", "no such volume"), later(15*time.Minute)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:15:00: the target pod virt-launcher-vm-tgt does not run on node node2: no such volume, 15m0s after it was made", "delete the target pod")},
		"its image can't be had": {observed(scheduling, target("node2", waits("ErrImagePull", "not found")), later(time.Minute)),
			lines("drydock.dev/Waiting=True ErrImagePull: not found", "look again after 4m0s")},
		"a sidecar's image can't be had": {observed(scheduling, target("node2", waits("PodInitializing", ""), sidecarWaits("ErrImagePull", "not found")), later(time.Minute)),
			lines("drydock.dev/Waiting=True ErrImagePull: not found", "look again after 4m0s")},
		"its image can't be had, without a word": {observed(scheduling, target("node2", waits("ImagePullBackOff", ""))),
			lines("drydock.dev/Waiting=True ImagePullBackOff: the container waits: ImagePullBackOff", "look again after 5m0s")},
		"its image can't be had for too long": {observed(asked, scheduling, target("node2", waits("ErrImagePull", "not found")), later(5*time.Minute)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:05:00: the target pod virt-launcher-vm-tgt does not start on node node2: not found, 5m0s after it was made", "delete the target pod")},
		"another limit for scheduling": {observed(scheduling, annotated(v1.MigrationUnschedulablePodTimeoutSecondsAnnotation, " 299"), target("", unschedulable)),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode, "look again after 4m59s")},
		"a longer limit for scheduling": {observed(scheduling, annotated(v1.MigrationUnschedulablePodTimeoutSecondsAnnotation, "3600"), target("", unschedulable)),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode, "look again after 5m0s")},
		"a limit that is too large a number": {observed(scheduling, annotated(v1.MigrationUnschedulablePodTimeoutSecondsAnnotation, "9223372036854775807"), target("", unschedulable)),
			lines("drydock.dev/Waiting=True Unschedulable: "+noNode, "look again after 5m0s")},
		"another limit for running":      {observed(scheduling, annotated(v1.MigrationPendingPodTimeoutSecondsAnnotation, "1"), target("node2")), lines("look again after 1s")},
		"another limit while none looks": {observed(scheduling, annotated(v1.MigrationPendingPodTimeoutSecondsAnnotation, "60"), target("")), lines("look again after 1m0s")},
		"a longer limit":                 {observed(scheduling, annotated(v1.MigrationPendingPodTimeoutSecondsAnnotation, "901"), target("")), lines("look again after 15m0s")},
		"a limit of nothing":             {observed(scheduling, annotated(v1.MigrationPendingPodTimeoutSecondsAnnotation, "0"), target("")), lines("look again after 15m0s")},
		"a limit that is none":           {observed(scheduling, annotated(v1.MigrationPendingPodTimeoutSecondsAnnotation, "soon"), target("")), lines("look again after 15m0s")},
		"the pod is not shown any more":  {observed(scheduling), lines("needs the target pod")},
		"the pod is gone": {observed(asked, scheduling),
			lines("enter Failed", node1+"/ failed completed at 12:00:00: the target pod virt-launcher-vm-tgt is gone", "drop the finalizer")},
		"the pod is gone, and the VMI may have been handed over since": {observed(targetAsked, scheduling), lines("needs the VMI")},
		"the pod has ended": {observed(asked, scheduling, target("node2", ended)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the target pod virt-launcher-vm-tgt has ended: The node was low on memory.", "delete the target pod", "drop the finalizer")},
		"the pod is being deleted": {observed(asked, scheduling, target("node2", deleted)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the target pod virt-launcher-vm-tgt is being deleted")},
		"the pod is somebody else's": {observed(asked, in(v1.MigrationPending), target("node2", func(p *corev1.Pod) { p.Labels, p.OwnerReferences = nil, nil })),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the pod virt-launcher-vm-tgt, which has the name of the migration's target pod, is another one, or somebody has changed it", "drop the finalizer")},
		"somebody has taken its owner off": {observed(asked, scheduling, target("node2", func(p *corev1.Pod) { p.OwnerReferences = nil })),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the pod virt-launcher-vm-tgt, which has the name of the migration's target pod, is another one, or somebody has changed it", "delete the target pod")},
		"somebody has taken its label off": {observed(asked, scheduling, target("node2", func(p *corev1.Pod) { delete(p.Labels, v1.MigrationJobLabel) })),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the pod virt-launcher-vm-tgt, which has the name of the migration's target pod, is another one, or somebody has changed it", "delete the target pod")},
		"another migration of the VMI is going on": {observed(scheduling, told(another), target("node2", runs), func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("drydock.dev/Waiting=True AnotherMigration: another migration of the VMI has not ended yet")},
		"the pod that the last one came from has not ended": {observed(scheduling, target("node2", runs), func(o *Observed) { o.VMI.Status.ActivePods["old"] = "node3" }),
			lines("drydock.dev/Waiting=True EarlierMigration: the other launcher pod of the VMI's last migration has not ended yet")},
		"a disk is being unplugged": {observed(scheduling, volume(v1.HotplugVolumeDetaching), target("node2", runs)),
			lines("drydock.dev/Waiting=True VolumesChanging: "+changing, "look again after 15m0s")},
		"a disk is being unplugged for too long": {observed(asked, scheduling, volume(v1.HotplugVolumeDetaching), target("node2", runs), later(15*time.Minute)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:15:00: "+changing+", 15m0s after it was made", "delete the target pod")},
		"the guest's pod ends": {observed(asked, scheduling, source(deleted), target("node2", runs)),
			lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: the launcher pod virt-launcher-vm-src is being deleted, and the guest ends with it", "delete the target pod")},
		"the VMI is gone": {observed(target("node2"), noVMI, vmiAsked, scheduling),
			lines("enter Failed", "state of m  -> node2/virt-launcher-vm-tgt failed completed at 12:00:00: the VMI vm does not exist (any more)", "delete the target pod")},
		"it runs": {observed(scheduling, says(ConditionWaiting, "ErrImagePull", "not found"), target("node2", runs), func(o *Observed) { o.Configuration.Policy = "gold" }),
			lines(`begin m from node1/virt-launcher-vm-src to node2/virt-launcher-vm-tgt (target), policy "gold", 5`,
				"enter Scheduled", "enter PreparingTarget", "no drydock.dev/Waiting any more", "look again after 5m0s")},
		"it runs although it was not said to be made": {observed(target("node2", runs), func(o *Observed) { o.Choice = Choice{} }),
			lines(`begin m from node1/virt-launcher-vm-src to node2/virt-launcher-vm-tgt (target), policy "", 5`,
				"enter Pending", "enter Scheduling", "enter Scheduled", "enter PreparingTarget", "look again after 5m0s")},
		"it is canceled": {observed(asked, scheduling, cancel, target("node2", runs)),
			lines("enter Failed", "migrationAbortRequested=True AbortRequested: "+cancelText,
				node1+"node2/virt-launcher-vm-tgt failed completed abort Succeeded at 12:00:00: "+cancelText, "delete the target pod")},
		"it is canceled, and the VMI may have been handed over since": {observed(scheduling, cancel, target("node2", runs)), lines("needs the VMI")},
		"it is canceled before it was said to be made":                {observed(in(v1.MigrationPending), cancel, target("node2", runs)), lines("needs the VMI")},
	})
}

func TestWhileTheVirtHandlersWork(t *testing.T) {
	const (
		done        = "state of m node1 -> node2/virt-launcher-vm-tgt"
		notYet      = "virt-handler on node node2 has not made the target ready within 5m0s"
		notAttached = "drydock.dev/Waiting=True VolumesNotAttached: the hotplugged volumes (data) are not attached to node node2 yet: no room"
	)
	preparing, ready, running := in(v1.MigrationPreparingTarget), in(v1.MigrationTargetReady), in(v1.MigrationRunning)
	there := target("node2", runs)
	check(t, map[string]situation{
		"the VMI has been handed over, and nobody has said so": {observed(in(v1.MigrationScheduling), told(), there), lines("enter Scheduled", "enter PreparingTarget", "look again after 5m0s")},
		"a VMI that is handed over whose migration waited": {observed(says(ConditionWaiting, "NodeLimit", "as many"), told(), there, func(o *Observed) { o.Choice = Choice{} }),
			lines("enter Pending", "enter Scheduling", "enter Scheduled", "enter PreparingTarget", "no drydock.dev/Waiting any more", "look again after 5m0s")},
		"disks are being attached to the target's node": {observed(preparing, told(), there, volume(v1.VolumeReady), later(time.Second)), lines("look again after 9s")},
		"that takes long":                           {observed(preparing, told(), there, volume(v1.VolumeReady), later(preparationPatience)), lines("needs the attachment pods at the target")},
		"that takes long, and nobody knows why":     {observed(preparing, told(), there, volume(v1.VolumeReady), stuck(""), later(time.Minute)), lines("look again after 20s")},
		"what keeps them is known":                  {observed(preparing, told(), there, volume(v1.VolumeReady), stuck("no room"), later(time.Minute)), lines(notAttached, "look again after 20s")},
		"what kept them is over":                    {observed(preparing, says(ConditionWaiting, ReasonNotAttached, "no room"), told(addressed), there, volume(v1.VolumeReady), later(time.Minute)), lines("enter TargetReady", "no drydock.dev/Waiting any more", "look again after 4m0s")},
		"disks that wait for their claim keep none": {observed(preparing, told(), there, volume(v1.VolumeBound), later(time.Minute)), lines("look again after 4m0s")},
		"disks are not attached to the target's node in time": {observed(preparing, told(), there, volume(v1.VolumeReady), stuck(""), later(5*time.Minute)),
			lines("failure: the hotplugged volumes (data) have not been attached to node node2 within 5m0s: see their attachment pods there")},
		"disks are not attached in time, and it is known why": {observed(preparing, told(), there, volume(v1.VolumeReady), stuck("no room"), later(5*time.Minute)),
			lines("failure: the hotplugged volumes (data) have not been attached to node node2 within 5m0s: no room")},
		"disks are not attached, and it is canceled": {observed(preparing, cancel, told(), there, volume(v1.VolumeReady), stuck("no room"), later(time.Minute)),
			lines("abort", "failure: the migration was canceled: its object was deleted")},
		"the target is being prepared":                         {observed(preparing, told(), there, later(time.Minute)), lines("look again after 4m0s")},
		"the target is ready":                                  {observed(preparing, told(addressed), there, later(time.Minute)), lines("enter TargetReady", "look again after 4m0s")},
		"the guest moves":                                      {observed(ready, told(addressed, begun), there), lines("enter Running", "look again after 1h0m0s")},
		"the guest moves, unseen so far":                       {observed(preparing, told(addressed, begun), there), lines("enter TargetReady", "enter Running", "look again after 1h0m0s")},
		"the guest moves for hours, nobody knows for how many": {observed(running, told(addressed, begun), there, later(5*time.Hour)), lines("look again after 1h0m0s")},
		"a phase that is late does not take it back":           {observed(running, told(), there), lines("look again after 5m0s")},
		"the target is not ready in time":                      {observed(preparing, told(), there, later(5*time.Minute)), lines("failure: " + notYet)},
		"the source does not begin in time":                    {observed(ready, told(addressed), there, later(5*time.Minute)), lines("failure: virt-handler on node node1 has not begun to send the guest within 5m0s")},
		"the target pod is not shown":                          {observed(preparing, told()), lines("needs the target pod")},
		"the target pod is not shown, and the guest moves":     {observed(running, told(begun)), lines("needs the target pod")},
		"the target pod is gone":                               {observed(preparing, told(), targetAsked), lines("failure: the target pod virt-launcher-vm-tgt is gone")},
		"another pod has the target's name":                    {observed(preparing, told(), target("node2", runs, func(p *corev1.Pod) { p.UID = "new" })), lines("failure: the target pod virt-launcher-vm-tgt is gone")},
		"the target pod has ended":                             {observed(preparing, told(), target("node2", ended)), lines("failure: the target pod virt-launcher-vm-tgt has ended: The node was low on memory.")},
		"the target pod is being deleted":                      {observed(preparing, told(), target("node2", deleted)), lines("failure: the target pod virt-launcher-vm-tgt is being deleted")},
		"the target pod is gone while the guest moves": {observed(running, told(begun), targetAsked),
			lines("abort", "migrationAbortRequested=True AbortRequested: the target pod virt-launcher-vm-tgt is gone", "look again after 1h0m0s")},
		"the source has been asked to stop": {observed(running, told(begun, aborting), targetAsked, says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", "the target pod is being deleted")), lines("look again after 1h0m0s")},
		"the VMI is being deleted":          {observed(preparing, told(), there, vmiDeleted), lines("failure: the VMI is being deleted")},
		"the VMI is being deleted while the guest moves": {observed(running, told(begun), there, vmiDeleted),
			lines("abort", "migrationAbortRequested=True AbortRequested: the VMI is being deleted", "look again after 1h0m0s")},
		"the VMI has ended": {observed(running, told(begun), there, vmiEnded),
			lines("enter Failed", done+" failed completed at 12:00:00: the VMI has ended: its phase is Succeeded", "delete the target pod")},
		"it is canceled": {observed(preparing, told(), there, cancel), lines("abort", "failure: "+cancelText)},
		"it is canceled, with an old view of its phase": {observed(in(v1.MigrationScheduling), told(), there, cancel), lines("abort", "failure: "+cancelText, "enter Scheduled", "enter PreparingTarget")},
		"it is canceled while the guest moves": {observed(running, told(begun), there, cancel),
			lines("abort", "migrationAbortRequested=True AbortRequested: "+cancelText, "look again after 1h0m0s")},
		"it is canceled too late": {observed(running, told(begun, aborting, completed), there, cancel, onTarget),
			lines("enter Succeeded", done+" completed abort ", "drop the finalizer")},
		"it has failed": {observed(running, told(begun, failed), there),
			lines("enter Failed", done+" failed completed: the stream was cut", "delete the target pod")},
		"it has failed because it was stopped": {observed(running, told(begun, failed, aborting), there, says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", cancelText)),
			lines("enter Failed", done+" failed completed abort : "+cancelText+"; the stream was cut", "delete the target pod")},
		"it has failed without a word because it was stopped": {observed(running, told(begun, failed, func(ms *state) { ms.FailureReason = "" }), there,
			says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", cancelText)),
			lines("enter Failed", done+" failed completed: "+cancelText, "delete the target pod")},
		"it has failed as virt-controller has said": {observed(running, told(begun, failed), there, says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", "the stream was cut")),
			lines("enter Failed", done+" failed completed: the stream was cut", "delete the target pod")},
		"it has failed, and the target pod goes": {observed(running, told(begun, failed), target("node2", deleted)),
			lines("enter Failed", done+" failed completed: the stream was cut")},
		"it has failed, and the target pod is gone": {observed(running, told(begun, failed), targetAsked, func(o *Observed) { o.VMI.Labels = nil }),
			lines("enter Failed", done+" failed completed: the stream was cut", "drop the finalizer")},
		"it has failed, and only the label is left": {observed(running, told(begun, failed), targetAsked, func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("enter Failed", done+" failed completed: the stream was cut", "drop the finalizer")},
		"it has failed, and nothing is left": {observed(running, told(begun, failed), targetAsked, func(o *Observed) { o.VMI.Labels = nil; delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("enter Failed", done+" failed completed: the stream was cut", "drop the finalizer")},
		"it has failed, and a third pod is left": {observed(running, told(begun, failed), targetAsked, func(o *Observed) { o.VMI.Status.ActivePods["old"] = "node3" }),
			lines("enter Failed", done+" failed completed: the stream was cut", "drop the finalizer")},
		"it has failed, and the VMI has ended": {observed(running, told(begun, failed), there, vmiEnded),
			lines("enter Failed", done+" failed completed: the stream was cut", "delete the target pod")},
		"the guest has arrived, and the VMI does not say so": {observed(running, told(begun, completed), there), nil},
		"the guest has arrived, unseen so far":               {observed(preparing, told(begun, completed), there), lines("enter TargetReady", "enter Running")},
		"the guest has arrived":                              {observed(running, told(begun, completed), there, onTarget), lines("enter Succeeded", done+" completed", "drop the finalizer")},
		"the guest has arrived, and nothing was seen of it":  {observed(preparing, told(begun, completed), onTarget), lines("enter TargetReady", "enter Running", "enter Succeeded", done+" completed", "drop the finalizer")},
		"the guest has arrived and ended":                    {observed(running, told(begun, completed), there, vmiEnded), lines("enter Succeeded", done+" completed", "drop the finalizer")},
		"the VMI may speak of another":                       {observed(running, told(another, begun), there), lines("needs the VMI")},
		"the VMI speaks of another": {observed(asked, running, told(another, begun), there, func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("enter Failed", "state of m node1 -> node2/virt-launcher-vm-tgt failed completed at 12:00:00: the VMI's status.migrationState does not name this migration any more", "delete the target pod")},
		"the VMI speaks of none": {observed(asked, running, there),
			lines("enter Failed", "state of m node1 -> node2/virt-launcher-vm-tgt failed completed at 12:00:00: the VMI's status.migrationState does not name this migration any more", "delete the target pod")},
		"the VMI speaks of another, and names the pod": {observed(asked, running, told(another, begun), there),
			lines("enter Failed", "state of m node1 -> node2/virt-launcher-vm-tgt failed completed at 12:00:00: the VMI's status.migrationState does not name this migration any more")},
		"the guest has moved on": {observed(asked, running, told(another, begun, func(ms *state) { ms.SourcePod = targetName }), there, onTarget),
			lines("enter Succeeded", "drop the finalizer")},
	})
}

func TestAfterItsEnd(t *testing.T) {
	over, arrived := in(v1.MigrationFailed), in(v1.MigrationSucceeded)
	there := target("node2", runs)
	const late = "the migration had ended before the VMI was handed over"
	check(t, map[string]situation{
		"nothing is left":                          {observed(over, noFinalizer), nil},
		"nothing is left, and the VMI is gone":     {observed(over, noFinalizer, noVMI), nil},
		"it has arrived":                           {observed(arrived, told(begun, completed), onTarget, there), lines("drop the finalizer")},
		"it has arrived, and nothing is left":      {observed(arrived, told(begun, completed), onTarget, there, noFinalizer, asked), nil},
		"it had arrived, and the guest moved on":   {observed(arrived, noFinalizer, asked, there), nil},
		"the target pod may be left":               {observed(over), lines("needs the target pod")},
		"the target pod is left":                   {observed(over, there, asked), lines("delete the target pod")},
		"the target pod is left, says the cache":   {observed(over, there), lines("needs the VMI")},
		"it is left, and nobody waits for it":      {observed(over, there, asked, noFinalizer), lines("delete the target pod")},
		"the target pod is being deleted":          {observed(over, target("node2", deleted)), nil},
		"the target pod has ended":                 {observed(over, target("node2", ended)), lines("delete the target pod", "drop the finalizer")},
		"the target pod is gone":                   {observed(over, targetAsked), lines("drop the finalizer")},
		"the VMI is gone, and the pod is left":     {observed(there, noVMI, vmiAsked, over), lines("delete the target pod")},
		"the VMI may be gone, and the pod is left": {observed(there, noVMI, over), lines("needs the VMI")},
		"the VMI has ended, and the pod is left":   {observed(over, there, vmiEnded), lines("delete the target pod")},
		"the VMI still names the pod":              {observed(over, told(begun, failed), there), lines("delete the target pod")},
		"the guest was in it, and has ended":       {observed(over, told(begun, completed), onTarget, there, vmiEnded), lines("delete the target pod")},
		"the guest is said to be in it, and the VMI does not name it": {observed(over, told(begun, completed), onTarget, there, func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }),
			lines("needs the VMI")},
		"the next one completed, and the VMI still names the pod": {observed(over, asked, told(another, begun, completed), there), nil},
		"the guest is in it after all":                            {observed(over, told(begun, completed), onTarget, there), lines("drop the finalizer")},
		"the next one starts from it":                             {observed(over, told(another, begun, func(ms *state) { ms.SourcePod = targetName }), onTarget, there), lines("drop the finalizer")},
		"the next one is about other pods":                        {observed(over, told(another, begun), there), lines("needs the VMI")},
		"the next one completed with other pods":                  {observed(over, asked, told(another, begun, completed), there, onTarget, func(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }), lines("delete the target pod")},
		"another leader has handed over since":                    {observed(over, told(), there), lines("failure: " + late)},
		"it has, and the guest moves":                             {observed(over, told(begun), there), lines("abort")},
		"it has, and the guest moves in spite of that":            {observed(over, told(begun, aborting), there), nil},
		"a pod of somebody else's has the name":                   {observed(over, asked, target("node2", func(p *corev1.Pod) { p.Labels, p.OwnerReferences = nil, nil })), lines("drop the finalizer")},
	})
}

func TestReasonsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, o := range map[string]Observed{
		"of a pod that has ended": observed(asked, in(v1.MigrationScheduling), target("node2", ended, func(p *corev1.Pod) { p.Status.Message = long })),
		"of a migration that is stopped": observed(in(v1.MigrationRunning), told(begun, failed, func(ms *state) { ms.FailureReason = long }),
			says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", long), target("node2")),
	} {
		if got := len(Decide(o).Migration.Status.MigrationState.FailureReason); got < 1000 || got > 1024 {
			t.Errorf("%s: the reason has %d bytes", name, got)
		}
	}
	p := Decide(observed(in(v1.MigrationPreparingTarget), told(), target("node2", ended, func(p *corev1.Pod) { p.Status.Message = long })))
	if got := len(p.VMI.Failure); got < 1000 || got > 1024 {
		t.Errorf("the VMI is told a reason of %d bytes", got)
	}
	p = Decide(observed(in(v1.MigrationScheduling), target("node2", waits("ErrImagePull", long))))
	if got := len(p.Migration.Status.Conditions[0].Message); got < 1000 || got > 1024 {
		t.Errorf("the condition says %d bytes", got)
	}
}

// The API server keeps whole seconds: a time must be the same when it is read again.
func TestTimesAreWholeSeconds(t *testing.T) {
	o := observed(func(o *Observed) { o.Now = noon.Add(300 * time.Millisecond) })
	for _, at := range Decide(o).Migration.Status.PhaseTransitionTimestamps {
		if !at.PhaseTransitionTimestamp.Time.Equal(noon) {
			t.Errorf("%s was entered at %v", at.Phase, at.PhaseTransitionTimestamp)
		}
	}
}

// The settings must not share a configuration with the VMI.
func TestTheConfigurationIsACopy(t *testing.T) {
	o := observed(in(v1.MigrationScheduling), target("node2", runs))
	o.Configuration.AllowPostCopy = new(false)
	*Decide(o).VMI.Begin.Configuration.AllowPostCopy = true
	if *o.Configuration.AllowPostCopy {
		t.Error("who changes what the VMI is told changes the configuration")
	}
}

package oneguestproof

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// The bounds of the model: the number of consecutive VMIs of a VM, and of pods of a VMI.
const (
	mostVMIs = 2
	mostPods = 2
)

// The g-th pod of VMI i has i*mostPods+g+1; 0 is none.
type podID int8

func idOf(vmi, made int8) podID { return podID(vmi*mostPods + made + 1) }
func (p podID) vmi() int8       { return (int8(p) - 1) / mostPods }
func (p podID) uid() types.UID  { return types.UID(fmt.Sprintf("pod-%d", p)) }

// instance is a stored VMI.
type instance struct {
	exists              bool
	number              int8
	phase               int8
	ran                 bool
	deleting, finalizer bool
	// disowned means that its VM is not its owner any more.
	disowned bool
	// pod is the one in status.activePods.
	pod podID
	// missed is the condition Ready about a deleted pod.
	missed missed
}

type missed int8

const (
	notMissed missed = iota
	missedLately
	// missedLong means that the guest's time is over.
	missedLong
)

var phases = []v1.VirtualMachineInstancePhase{v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed}

func phaseOf(p v1.VirtualMachineInstancePhase) int8 { return int8(slices.Index(phases, p)) }

var phaseRunning, phaseSucceeded = phaseOf(v1.Running), phaseOf(v1.Succeeded)

func (i instance) final() bool { return i.phase >= phaseSucceeded }

// A VMI has one pod at a time, because they have the same name.
type pod struct {
	exists                           bool
	id                               podID
	bound, deleting, owned, finished bool
	lost                             lostLabels
}

// editable are the labels that rules read from a launcher pod of a single VM; the last is that of its claim.
var editable = []string{v1.AppLabel, v1.CreatedByLabel, launcherpod.NameLabel, launcherpod.ClaimLabel(sharedClaim)}

// lostLabels are those that somebody has removed.
type lostLabels uint8

func (l lostLabels) has(bit int) bool { return l&(1<<bit) != 0 }

func (l lostLabels) take(pod *corev1.Pod) {
	for bit, label := range editable {
		if l.has(bit) {
			delete(pod.Labels, label)
		}
	}
}

// process is the state of a pod's processes on a node.
type process int8

const (
	none process = iota
	// assigned means that the kubelet knows of the pod.
	assigned
	// waiting means that virt-launcher runs and has started nothing.
	waiting
	guest
	ended
	// endedUnheard means that virt-handler was down when it ended.
	endedUnheard
)

func (p process) alive() bool { return p == waiting || p == guest }

// Each VMI has a node of its own.
type node int8

const (
	answers node = iota
	silent
	// back means that it answers again, and its kubelet may not have caught up.
	back
	// fenced means that nothing runs on it, and that somebody has declared so.
	fenced
)

// view is the VMI in the cache of its node's virt-handler.
type view struct {
	seen, gone, deleting bool
	phase                int8
	pod                  podID
}

// leader is a virt-controller with old caches.
type leader struct {
	vmi  instance
	pods [mostVMIs]pod
	// Its next requests: to make a pod, to patch the VMI from one version to another, to delete a pod.
	create, patch bool
	from, to      instance
	remove        podID
}

// faults happen a limited number of times.
const (
	deletesVMI = iota
	orphansVMI
	stripsVMI
	deletesPod
	forcesPod
	disownsPod
	disownsVMI
	relabels
	silences
	unhears
	budgets
)

// state is the whole cluster with one VM.
type state struct {
	vmi    instance
	made   int8
	pods   [mostVMIs]pod
	makes  [mostVMIs]int8
	procs  [mostVMIs][mostPods]process
	nodes  [mostVMIs]node
	views  [mostVMIs]view
	old    leader
	budget [budgets]int8
}

func (s *state) proc(id podID) *process {
	return &s.procs[id.vmi()][(int8(id)-1)%mostPods]
}

// guests counts the QEMUs.
func (s *state) guests() int {
	n := 0
	for i := range s.procs {
		for _, p := range s.procs[i] {
			if p == guest {
				n++
			}
		}
	}
	return n
}

// runs reports whether the VM is in its wanted state, with nothing left of earlier VMIs, or whether it can't get there
// within the model's bounds.
func (s *state) runs() bool {
	v := s.vmi
	for i := range s.pods {
		if s.pods[i].exists && (!v.exists || v.number != int8(i)) {
			return false
		}
	}
	if v.exists && v.phase == phaseRunning && v.pod != 0 && *s.proc(v.pod) == guest {
		return true
	}
	over := s.made == mostVMIs && (!v.exists || v.final() || v.deleting)
	return over || v.exists && s.makes[v.number] == mostPods && v.pod == 0
}

func (s *state) String() string {
	text := "no VMI"
	if v := s.vmi; v.exists {
		text = fmt.Sprintf("VMI %d %s pod %d", v.number, phases[v.phase], v.pod)
		if v.deleting {
			text += " deleting"
		}
		if !v.finalizer {
			text += " stripped"
		}
	}
	for i, p := range s.pods {
		if p.exists {
			text += fmt.Sprintf("; pod %d of %d%s", p.id, i, marks(p))
		}
	}
	return text + fmt.Sprintf("; processes %v nodes %v", s.procs, s.nodes)
}

func marks(p pod) string {
	text := ""
	for mark, set := range map[string]bool{"bound": p.bound, "deleting": p.deleting, "owned": p.owned, "finished": p.finished, "relabeled": p.lost != 0} {
		if set {
			text += " " + mark
		}
	}
	return text
}

// The deciding functions get objects that are made from the model's state.

var (
	clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	past  = metav1.NewTime(clock.Add(-time.Hour))
)

func vmObject() *v1.VirtualMachine {
	vm := &v1.VirtualMachine{}
	vm.Name, vm.Namespace, vm.UID = "vm", "ns", "vm-uid"
	vm.Finalizers = []string{v1.VirtualMachineControllerFinalizer}
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	return vm
}

func vmiUID(number int8) types.UID { return types.UID(fmt.Sprintf("vmi-%d", number)) }

func nodeName(vmi int8) string { return fmt.Sprintf("node-%d", vmi) }

// object returns the VMI of the model's state.
func (i instance) object() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "vm", "ns", vmiUID(i.number)
	vmi.Labels = map[string]string{v1.VirtualMachineLabel: "vm"}
	if !i.disowned {
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vmObject(), v1.VirtualMachineGroupVersionKind)}
	}
	vmi.CreationTimestamp = past
	if i.finalizer {
		vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	}
	if i.deleting {
		vmi.DeletionTimestamp = &past
	}
	if i.ran {
		vmi.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: v1.Running}}
	}
	vmi.Status.Phase = phases[i.phase]
	if i.pod != 0 {
		vmi.Status.NodeName = nodeName(i.number)
		vmi.Status.ActivePods = map[types.UID]string{i.pod.uid(): vmi.Status.NodeName}
	}
	if i.missed != notMissed {
		since := metav1.NewTime(clock)
		if i.missed == missedLong {
			since = past
		}
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
			Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: v1.PodNotExistsReason, LastProbeTime: since,
		}}
	}
	return vmi
}

// read reads a planned VMI back into the model.
func (i instance) read(vmi *v1.VirtualMachineInstance) instance {
	i.phase = phaseOf(vmi.Status.Phase)
	i.finalizer = len(vmi.Finalizers) > 0
	for uid := range vmi.Status.ActivePods {
		if _, err := fmt.Sscanf(string(uid), "pod-%d", &i.pod); err != nil {
			panic(err)
		}
	}
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	switch {
	case i.final(), c == nil, c.Reason != v1.PodNotExistsReason:
		i.missed = notMissed
	case i.missed == notMissed:
		i.missed = missedLately
	}
	return i
}

// object returns the pod of the model's state.
func (p pod) object() *corev1.Pod {
	of := instance{number: p.id.vmi()}.object()
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID = launcherpod.Name(of), "ns", p.id.uid()
	out.CreationTimestamp = past
	out.Labels = map[string]string{
		v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: string(of.UID),
		launcherpod.NameLabel: launcherpod.NameLabelValue(of.Name),
	}
	p.lost.take(out)
	out.Status.Phase = corev1.PodRunning
	if p.owned {
		out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, v1.VirtualMachineInstanceGroupVersionKind)}
	}
	if p.bound {
		out.Spec.NodeName = nodeName(p.id.vmi())
	}
	if p.deleting {
		out.DeletionTimestamp = &past
	}
	if p.finished {
		out.Status.Phase = corev1.PodSucceeded
	}
	return out
}

func (n node) object() *corev1.Node {
	ready, since := corev1.ConditionTrue, past
	switch n {
	case silent, fenced:
		ready = corev1.ConditionUnknown
	case back:
		since = metav1.NewTime(clock)
	}
	out := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: since}}}}
	if n == fenced {
		out.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	}
	return out
}

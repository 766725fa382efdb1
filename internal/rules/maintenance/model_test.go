package maintenance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// mostPods is the number of maintenance pods in the model. They are made in the order of their numbers.
const mostPods = 2

// machineState is the stored VM. holder is the number of a pod plus one, or 0 for none.
type machineState struct {
	always, open, release bool
	// instance means that the machine is a VMI without a VM. Then always means that it may have a guest, and handed
	// that it has been handed over to a node, until it is reset.
	instance, handed bool
	holder           int8
}

// podState is a stored maintenance pod.
type podState struct {
	made, exists, gated, kept, deleting, bound, terminal bool
}

// process is the state of a pod's processes on a node.
type process int8

const (
	none process = iota
	runs
	ended
)

// instance is the VM's VMI, and its guest. The two writes of its start are planned on earlier reads.
type instance struct {
	creating                                 bool
	exists, deleting, handing, handed, guest bool
	// For a VMI without a VM, stale means that the VMI was written since its handover was planned, and ended that the
	// guest's pod is gone.
	stale, ended bool
}

// leader is a virt-controller that may be cut off between any two of its requests. changed means that the VM was
// written since the leader read it.
type leader struct {
	reads         int8
	vm, later     machineState
	changed       bool
	pods          [mostPods]podState
	holder        podState
	asked         bool
	looked, guest bool
	// pluggedAsked means that the leader has looked for plugged disks, and plugged that it found one.
	pluggedAsked, plugged bool
	laterAsked            bool
}

// things that happen a limited number of times.
const (
	creates = iota
	deletes
	silences
	starts
	startsPast
	forces
	plugs
	budgets
)

// state is a cluster with one VM.
type state struct {
	vm     machineState
	cached machineState
	pods   [mostPods]podState
	procs  [mostPods]process
	silent bool
	vmi    instance
	plug   plug
	slow   leader
	budget [budgets]int8
}

func (s *state) String() string {
	text := fmt.Sprintf("vm{always %t, holder %d, open %t}", s.vm.always, s.vm.holder, s.vm.open)
	for i, p := range s.pods {
		if p.exists {
			text += fmt.Sprintf(" pod%d{gated %t, deleting %t, bound %t, ended %t, process %d}", i+1, p.gated, p.deleting, p.bound, p.terminal, s.procs[i])
		}
	}
	if v := s.vmi; v.exists {
		text += fmt.Sprintf(" vmi{handing %t, handed %t, guest %t, deleting %t}", v.handing, v.handed, v.guest, v.deleting)
	}
	if s.plug.wanted {
		text += fmt.Sprintf(" plug%+v", s.plug)
	}
	return text
}

// A write by anybody who read an earlier version will be refused.
func (s *state) writeVM(to machineState) {
	s.vm, s.slow.changed, s.vmi.stale = to, true, s.vmi.handing
}

func podName(i int) string { return fmt.Sprintf("pod%d", i+1) }

func (m machineState) object() *v1.VirtualMachine {
	strategy := v1.RunStrategyHalted
	if m.always {
		strategy = v1.RunStrategyAlways
	}
	vm := newVM()
	vm.Spec.RunStrategy, vm.Finalizers = &strategy, []string{v1.VirtualMachineControllerFinalizer}
	firmware.Set(&vm.Spec.Template.Spec, "5d307ca9-b3ef-428c-8861-06e72d69f223")
	m.lock(vm)
	return vm
}

// lock sets a machine's lock from the model.
func (m machineState) lock(of lock.Machine) {
	if m.holder == 0 {
		return
	}
	lock.Take(of, newPod(podName(int(m.holder)-1)), now)
	if m.open {
		lock.Open(of)
	}
	if m.release {
		lock.Force(of, "root")
	}
}

// machine returns the VM, or the VMI without one.
func (m machineState) machine() lock.Machine {
	if m.instance {
		return m.standAlone()
	}
	return m.object()
}

// machineOf reads a planned VM back into the model.
func machineOf(vm lock.Machine, before machineState) machineState {
	l, locked := lock.Of(vm)
	out := machineState{always: before.always, open: l.Open, instance: before.instance, handed: before.handed}
	for i := range mostPods {
		if locked && l.Pod == podName(i) {
			out.holder = int8(i) + 1
		}
	}
	return out
}

func (p podState) object(i int) *corev1.Pod {
	if !p.exists {
		return nil
	}
	pod := newPod(podName(i))
	if !p.gated {
		lifted(pod)
	}
	if !p.kept {
		vouched(pod)
	}
	if p.deleting {
		deleted(pod)
	}
	if p.bound {
		bound(pod)
	}
	if p.terminal {
		finished(pod)
	}
	return pod
}

func (i instance) object(vm *v1.VirtualMachine) (*v1.VirtualMachineInstance, *corev1.Pod) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "vmi-uid", Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}}}
	vmi.Status.Phase = v1.Scheduling
	if i.handed {
		vmi.Status.Phase = v1.Running
	}
	if i.deleting {
		vmi.DeletionTimestamp = &metav1.Time{Time: now}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: launcherpod.Name(vmi), Namespace: "ns", UID: "launcher-uid",
		Labels:          map[string]string{v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: "vmi-uid"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)}}}
	pod.Spec.NodeName = "node"
	return vmi, pod
}

package maintenance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// The model of a VMI without a VM: its handover and its lock are writes of the same object. A launcher pod is bound as
// soon as a handover is planned.

// standAlone returns the VMI.
func (m machineState) standAlone() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "vmi-uid", Finalizers: []string{v1.VirtualMachineInstanceFinalizer}}}
	if !m.always {
		vmi.Spec.StartStrategy = new(lock.StartStrategy)
	}
	vmi.Status.Phase = v1.Pending
	if m.handed {
		vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node"
		vmi.Status.ActivePods = map[types.UID]string{"launcher-uid": "node"}
	}
	m.lock(vmi)
	return vmi
}

// launcherOf returns the VMI's launcher pod.
func launcherOf(vmi *v1.VirtualMachineInstance) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: launcherpod.Name(vmi), Namespace: "ns", UID: "launcher-uid",
		Labels:          map[string]string{v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: "vmi-uid"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)}}}
	pod.Spec.NodeName = "node"
	return pod
}

// hasLauncher reports whether an observer sees the VM's VMI, or the launcher pod of a VMI without a VM.
func (s *state) hasLauncher() bool {
	if s.vm.instance {
		return s.vmi.handing || s.vm.handed && !s.vmi.ended
	}
	return s.vmi.exists
}

// instanceLoop is virt-controller's loop for a VMI without a VM, with an old cache, and the end of the guest.
func (sc *scenario) instanceLoop(s *state, add adder) {
	v := s.vmi
	if !s.vm.handed && !v.handing && sc.rules.handsOver(s.cached) {
		add("the VMI's loop is about to hand it over", false, func(to *state) {
			to.vmi.handing, to.vmi.stale = true, to.cached != to.vm
		})
	}
	if v.handing {
		add("it hands the VMI over", false, func(to *state) {
			to.vmi.handing = false
			if !to.vmi.stale || sc.rules.blindly {
				vm := to.vm
				vm.handed = true
				to.writeVM(vm)
			}
			to.vmi.stale = false
		})
	}
	instanceGuest(s, add)
}

// instanceGuest has the steps of a guest after its VMI was handed over.
func instanceGuest(s *state, add adder) {
	v := s.vmi
	if s.vm.handed && !v.guest && !v.ended {
		add("the guest starts", false, func(to *state) { to.vmi.guest = true })
	}
	if s.vm.handed && !v.ended && shutsDown(s.cached) {
		add("the guest is shut down, and its pod goes", false, func(to *state) { to.vmi.guest, to.vmi.ended = false, true })
	}
	if s.vm.handed && v.ended && beginsAnew(s.vm) {
		add("the VMI begins anew", false, func(to *state) {
			vm := to.vm
			vm.handed = false
			to.vmi = instance{}
			to.writeVM(vm)
		})
	}
}

// handsOverInstance reports whether the VMI's loop hands a VMI without a VM over to its node.
func handsOverInstance(vm machineState) bool {
	vmi := vm.standAlone()
	plan := vmicontroller.Decide(vmicontroller.Observed{VMI: vmi, Pod: launcherOf(vmi), RivalsAsked: true, VMAsked: true, Now: now})
	return !vm.handed && plan.VMI.Status.Phase == v1.Scheduled
}

// shutsDown reports whether the loop ends the guest of a VMI.
func shutsDown(vm machineState) bool {
	vmi := vm.standAlone()
	return vm.handed && vmicontroller.Decide(vmicontroller.Observed{VMI: vmi, Pod: launcherOf(vmi), Now: now}).DeletePod
}

// beginsAnew reports whether the loop resets a VMI whose guest has ended.
func beginsAnew(vm machineState) bool {
	vmi := vm.standAlone()
	vmi.Status.Phase = v1.Succeeded
	return vmicontroller.Decide(vmicontroller.Observed{VMI: vmi, PodAsked: true, Now: now}).VMI.Status.Phase == v1.Pending
}

var instanceScenarios = []scenario{
	{name: "a VMI, two pods, and changes of its start strategy", instance: true, budget: [budgets]int8{creates: 2, starts: 2}},
	{name: "a VMI that runs is taken to maintenance and back", instance: true, always: true, budget: [budgets]int8{creates: 1, starts: 3}},
	{name: "a VMI, and a pod that is deleted by force", instance: true, budget: [budgets]int8{creates: 1, deletes: 1, silences: 1, starts: 2}},
	{name: "a VMI, and a forced unlock on a silent node", instance: true, budget: [budgets]int8{creates: 2, silences: 1, forces: 1, starts: 1}},
}

func TestTheLockOfAVMIHolds(t *testing.T) {
	exploration.EachScenario(t, instanceScenarios, nil, func(sc scenario) string { return sc.name },
		func(_ *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			sc.rules = drydocks
			return sc.explore()
		})
}

// TestWhatIsWrongOfAVMIIsFound replaces each rule by possible errors. The exploration must find each.
func TestWhatIsWrongOfAVMIIsFound(t *testing.T) {
	blindly := drydocks
	blindly.blindly = true
	withoutTheLock := drydocks
	withoutTheLock.handsOver = func(vm machineState) bool {
		vm.holder = 0
		return handsOverInstance(vm)
	}
	anyPhase := seen(func(o *Observed) {
		if vmi, is := o.Machine.(*v1.VirtualMachineInstance); is {
			vmi.Status.Phase = v1.Pending
		}
		if o.Look != nil {
			o.Look = &Look{PluggedAsked: true}
		}
	})
	expectFound(t, map[string]mutant{
		"the handover does not mind what was written since":  {blindly, scenario{instance: true, budget: [budgets]int8{creates: 1, starts: 2}}, errGuest},
		"the VMI's loop does not look at the lock":           {withoutTheLock, scenario{instance: true, budget: [budgets]int8{creates: 1, starts: 1}}, errGuest},
		"a VMI is locked in any phase":                       {anyPhase, scenario{instance: true, always: true, budget: [budgets]int8{creates: 1, starts: 1}}, errGuest},
		"the lock goes when the pod's deletion is requested": {deletionIsTheEnd(), scenario{instance: true, budget: [budgets]int8{creates: 1, deletes: 1, silences: 1, starts: 1}}, errGuest},
	})
}

func TestWhatIsInTheWayOfAVMI(t *testing.T) {
	vmi := func(phase v1.VirtualMachineInstancePhase, changes ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		out := machineState{}.standAlone()
		out.Status.Phase = phase
		for _, change := range changes {
			change(out)
		}
		return out
	}
	goes := func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{Time: now} }
	runs := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.StartStrategy = nil }
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		look Look
		want string
	}{
		"nothing":          {vmi(v1.Pending), Look{}, ""},
		"it is locked":     {vmi(lock.Phase), Look{}, ""},
		"its deletion":     {vmi(v1.Pending, goes), Look{}, "the VMI is being deleted"},
		"a VM of its name": {vmi(v1.Pending), Look{VM: newVM()}, "there is a VM of the VMI's name by now, which the pod would be for"},
		"it is to run":     {vmi(v1.Running, runs), Look{}, "the VMI is to run: set its spec.startStrategy to Maintenance"},
		"it is shut down":  {vmi(v1.Running), Look{}, "the VMI's guest is being shut down (phase Running)"},
		"it has ended":     {vmi(v1.Failed), Look{}, "the VMI's guest has ended, and its pod is being taken away"},
		"its launcher pod": {vmi(v1.Pending), Look{Rivals: []vmicontroller.Rival{{Pod: "p", VMI: "vm"}}}, "the launcher pod p of the VMI has not ended"},
	} {
		if got := Obstacle(c.vmi, newPod("a"), &c.look); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// If a VM and a VMI have the same name, the pod must be for the one that was locked first.
func TestWhichMachineAPodIsFor(t *testing.T) {
	vm, vmi := newVM(), machineState{}.standAlone()
	lockedVMI, lockedVM := machineState{holder: 1}.standAlone(), newVM(held)
	for name, c := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want lock.Machine
	}{
		"neither":               {nil, nil, nil},
		"a VM":                  {vm, nil, vm},
		"a VMI":                 {nil, vmi, vmi},
		"a VM and its VMI":      {vm, vmi, vm},
		"a VMI that was locked": {vm, lockedVMI, lockedVMI},
		"both are locked":       {lockedVM, lockedVMI, lockedVM},
	} {
		if got := lock.Chosen(c.vm, c.vmi); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

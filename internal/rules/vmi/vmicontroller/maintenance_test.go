package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// maintainer is a maintenance pod of VM vm on the claim data.
func maintainer(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix", UID: "fix-uid",
		Labels:     map[string]string{layout.MaintenanceForLabel: "vm", launcherpod.ClaimLabel("data"): ""},
		Finalizers: []string{layout.MaintenanceFinalizer}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func lockedFor(pod *corev1.Pod) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
	lock.Take(vm, pod, now)
	return vm
}

func TestAGuestDoesNotStartWhileItsVMIsLocked(t *testing.T) {
	bind := func(vm *v1.VirtualMachine) Observed {
		return Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound), VM: vm, VMAsked: true}
	}
	judge(t, map[string]testCase{
		"its VM is locked: it is not handed over": {
			bind(lockedFor(maintainer())),
			outcome{phase: v1.Scheduling, after: 10 * time.Second, says: []string{
				"Synchronized=False Maintenance: the VM is in maintenance mode: its disks are locked for the pod fix; it starts when that has ended",
				"Ready=False GuestNotRunning: the VM is in maintenance mode: its disks are locked for the pod fix; it starts when that has ended",
			}}},
		"its VM is not locked: it is": {
			bind(&v1.VirtualMachine{}), outcome{phase: v1.Scheduled, says: []string{saysWaiting}}},
	})
}

func TestAMaintenancePodIsInAGuestsWay(t *testing.T) {
	gated := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	vouched := func(p *corev1.Pod) { p.Finalizers = nil }
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		vm     lock.Machine
		claims []string
		want   bool
	}{
		"it runs":                               {maintainer(), nil, []string{"data"}, true},
		"it runs on another claim":              {maintainer(), nil, []string{"other"}, false},
		"it waits":                              {maintainer(gated), nil, []string{"data"}, false},
		"it waits, and its VM is not locked":    {maintainer(gated), &v1.VirtualMachine{}, []string{"data"}, false},
		"it waits, and its VM is locked for it": {maintainer(gated), lockedFor(maintainer()), []string{"other", "data"}, true},
		"the lock is held, on another claim":    {maintainer(gated), lockedFor(maintainer()), []string{"other"}, false},
		"it has ended":                          {maintainer(ended), nil, []string{"data"}, false},
		"it has ended, and is the holder still": {maintainer(ended), lockedFor(maintainer()), []string{"data"}, false},
		"it was vouched for":                    {maintainer(vouched), nil, []string{"data"}, false},
	} {
		r, is := MaintainerOn(c.claims, c.pod, c.vm)
		if is != c.want {
			t.Errorf("%s: it is in the way: %v, want %v", name, is, c.want)
		}
		if is && (r.Maintains != "vm" || r.Claim != "data" || r.Pod != "fix") {
			t.Errorf("%s: it is called %+v", name, r)
		}
	}
	pod := maintainer()
	r, _ := MaintainerOn([]string{"data"}, pod, nil)
	p := Decide(Observed{VMI: newVMI(), RivalsAsked: true, Rivals: []Rival{r}, Now: now})
	if c := p.VMI.Status.Conditions; len(c) == 0 || p.CreatePod {
		t.Errorf("a guest does not wait for it: %+v", c)
	}
}

func wanted(vmi *v1.VirtualMachineInstance) { vmi.Spec.StartStrategy = new(lock.StartStrategy) }

func locked(vmi *v1.VirtualMachineInstance) { lock.Take(vmi, maintainer(), now) }

func TestAVMIThatIsToHaveNoGuest(t *testing.T) {
	const (
		waits  = "Ready=False GuestNotRunning: spec.startStrategy is Maintenance: the guest starts when it is not any more"
		serves = "Ready=False GuestNotRunning: the disks are locked for the pod fix"
		goesOn = serves + "; the guest starts when that has ended"
	)
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	judge(t, map[string]testCase{
		"a new one gets no pod": {Observed{VMI: newVMI(wanted)}, outcome{phase: v1.Pending, says: []string{waits}}},
		"it is locked":          {Observed{VMI: newVMI(wanted, locked)}, outcome{phase: lock.Phase, says: []string{serves}}},
		"it may start and is locked still": {Observed{VMI: newVMI(locked)},
			outcome{phase: lock.Phase, says: []string{goesOn}}},
		"a pod that was made goes": {Observed{VMI: newVMI(wanted, inPhase(v1.Scheduling, 0)), Pod: newPod(bound)},
			outcome{phase: v1.Pending, remove: true, says: []string{waits}}},
		"its pod has ended, and is asked for": {Observed{VMI: newVMI(wanted, inPhase(v1.Succeeded, 0)), Pod: newPod(bound, ended)},
			outcome{phase: v1.Succeeded, ask: true}},
		"its pod has ended: it goes": {Observed{VMI: newVMI(wanted, inPhase(v1.Succeeded, 0)), Pod: newPod(bound, ended), PodAsked: true},
			outcome{phase: v1.Succeeded, remove: true}},
		"its pod is gone: it begins anew": {Observed{VMI: newVMI(wanted, inPhase(v1.Failed, 0)), PodAsked: true},
			outcome{phase: v1.Pending, says: []string{waits}}},
	})
}

func TestAGuestThatIsToEndForMaintenanceIsShutDown(t *testing.T) {
	p := Decide(Observed{VMI: newVMI(wanted, inPhase(v1.Running, 0)), Pod: newPod(bound, podPhase(corev1.PodRunning)), Now: now})
	if !p.DeletePod || p.VMI.Status.Phase != v1.Running {
		t.Errorf("its pod is deleted: %v, phase %s", p.DeletePod, p.VMI.Status.Phase)
	}
	moving := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourcePod: "pod", TargetPod: "target"}
	}
	p = Decide(Observed{VMI: newVMI(wanted, inPhase(v1.Running, 0), moving), Pod: newPod(bound, podPhase(corev1.PodRunning)), Now: now})
	if p.DeletePod {
		t.Error("a guest is shut down while it migrates")
	}
}

package vmicontroller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newVMI(edit ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: "vmi", Namespace: "ns", UID: "uid", Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
		CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
	}}
	for _, e := range edit {
		e(vmi)
	}
	return vmi
}

func inPhase(phase v1.VirtualMachineInstancePhase, ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		enter(vmi, phase, now.Add(-ago))
		if phase != v1.Pending && phase != v1.Scheduling {
			vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "node"}
		}
	}
}

func enter(vmi *v1.VirtualMachineInstance, phase v1.VirtualMachineInstancePhase, at time.Time) {
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at)})
}

// finished reports whether a pod's processes have ended.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func deleted(ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		at := metav1.NewTime(now.Add(-ago))
		vmi.DeletionTimestamp = &at
	}
}

func newPod(edit ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Namespace: "ns", UID: "pod-uid",
			Labels:          map[string]string{v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: string(newVMI().UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(newVMI(), v1.VirtualMachineInstanceGroupVersionKind)},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: layout.ComputeContainer, Image: "launcher:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, e := range edit {
		e(pod)
	}
	return pod
}

func missingClaims(names ...string) []placement.Claim {
	var out []placement.Claim
	for _, name := range names {
		out = append(out, placement.Claim{Name: name})
	}
	return out
}

func bound(pod *corev1.Pod) { pod.Spec.NodeName = "node" }

// made sets a pod's age.
func made(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(now.Add(-age)) }
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: now} }

func podPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func unschedulable(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 2 Insufficient memory.",
	}}
}

func lackingKVM(pod *corev1.Pod) {
	unschedulable(pod)
	pod.Status.Conditions[0].Message = "0/2 nodes are available: 2 Insufficient devices.kubevirt.io/kvm."
}

func compute(state corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: state}}
	}
}

func exited(message string) func(*corev1.Pod) {
	return compute(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, Reason: "Error", ExitCode: 1}})
}

func waiting(reason, message string) func(*corev1.Pod) {
	return compute(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func sidecarWaits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: layout.ConsoleLogContainer,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// outcome is a formatted plan.
type outcome struct {
	ask, create, remove, freed bool
	askWarning                 bool
	askRivals, askNode, askVM  bool
	askDisks                   bool
	phase                      v1.VirtualMachineInstancePhase
	reason                     string
	after                      time.Duration
	// says are the conditions "Type=Status Reason: Message".
	says []string
}

func outcomeOf(p Plan) outcome {
	out := outcome{
		askWarning: p.Needs == NeedWarning, askRivals: p.Needs == NeedRivals, askNode: p.Needs == NeedNode, askDisks: p.Needs == NeedDisks,
		askVM: p.Needs == NeedVM,
		ask:   p.Needs == NeedPod, create: p.CreatePod, remove: p.DeletePod, freed: len(p.VMI.Finalizers) == 0,
		phase: p.VMI.Status.Phase, reason: p.VMI.Status.Reason, after: p.After,
	}
	for _, c := range p.VMI.Status.Conditions {
		out.says = append(out.says, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return out
}

const saysWaiting = "Ready=False GuestNotRunning: Guest VM is not reported as running"

// testCase is an observation and the expected outcome.
type testCase struct {
	o    Observed
	want outcome
}

func TestDecide(t *testing.T) {
	judge(t, map[string]testCase{
		"before a pod is made, the guests are asked for beside which its own must not run": {
			Observed{VMI: newVMI()},
			outcome{askRivals: true},
		},
		"a new VMI gets its pod, and the scheduler a moment": {
			Observed{VMI: newVMI(), RivalsAsked: true},
			outcome{create: true, after: schedulerPatience},
		},
		"a VMI that had something to say says that it is over": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), RivalsAsked: true},
			outcome{create: true, phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for a node for the launcher pod"}},
		},
		"a pod that the scheduler has not looked at yet": {
			Observed{VMI: newVMI(), Pod: newPod(made(500 * time.Millisecond))},
			outcome{after: schedulerPatience - 500*time.Millisecond},
		},
		"a scheduler that takes its time": {
			Observed{VMI: newVMI(), Pod: newPod(made(schedulerPatience))},
			outcome{phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for a node for the launcher pod"}},
		},
		"a new VMI that fits nowhere says so at once": {
			Observed{VMI: newVMI(), Pod: newPod(made(0), unschedulable)},
			outcome{phase: v1.Scheduling, says: []string{
				"PodScheduled=False Unschedulable: 0/2 nodes are available: 2 Insufficient memory.",
				"Ready=False GuestNotRunning: waiting for a node for the launcher pod",
			}},
		},
		"no node's KVM runs guests: what to look at": {
			Observed{VMI: newVMI(), Pod: newPod(made(0), lackingKVM)},
			outcome{phase: v1.Scheduling, says: []string{
				"PodScheduled=False Unschedulable: 0/2 nodes are available: 2 Insufficient devices.kubevirt.io/kvm." +
					" (a node offers devices.kubevirt.io/kvm when its KVM has run a guest, see the node's label drydock.dev/kvm and its events;" +
					" with developerConfiguration.useEmulation in the KubeVirt object guests are emulated where it has not)",
				"Ready=False GuestNotRunning: waiting for a node for the launcher pod",
			}},
		},
		"a new VMI whose claim is missing waits for it, and says so": {
			Observed{VMI: newVMI(), Claims: missingClaims("a", "b")},
			outcome{phase: v1.Pending, says: []string{
				"Synchronized=False FailedPvcNotFound: PVC ns/a, ns/b do not exist, waiting for them to appear",
				"Ready=False GuestNotRunning: PVC ns/a, ns/b do not exist, waiting for them to appear",
			}},
		},
		"the controller died after it had created the pod: the pod is found": {
			Observed{VMI: newVMI(), Pod: newPod()},
			outcome{phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for a node for the launcher pod"}},
		},
		"no node fits: the scheduler's words": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(unschedulable), Claims: []placement.Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{}}}},
			outcome{phase: v1.Scheduling, says: []string{
				"PodScheduled=False Unschedulable: 0/2 nodes are available: 2 Insufficient memory.",
				"Ready=False GuestNotRunning: waiting for a node for the launcher pod; these claims are not bound yet: data",
			}},
		},
		"the pod is bound: whether its VM is locked is asked": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound)},
			outcome{phase: v1.Scheduling, askVM: true},
		},
		"the pod is bound: handed over": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound), VMAsked: true},
			outcome{phase: v1.Scheduled, says: []string{saysWaiting}},
		},
		"the pod was deleted before it was bound: its successor waits until it is gone": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(terminating)},
			outcome{phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for the launcher pod pod to go before it is made again"}},
		},
		"a pod that should be there is asked for before it is missed": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0))},
			outcome{ask: true, phase: v1.Scheduling},
		},
		"a pod that is gone before a guest could run is made again": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), PodAsked: true, RivalsAsked: true},
			outcome{create: true, phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for a node for the launcher pod"}},
		},
		"the kubelet refused the pod: failed, for its reason": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound, podPhase(corev1.PodFailed), func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "OutOfmemory", "Node didn't have enough resource: memory"
			})},
			outcome{phase: v1.Failed, reason: "OutOfmemory", says: []string{"Ready=False GuestNotRunning: Node didn't have enough resource: memory"}},
		},
		"the image can't be pulled: the kubelet's words": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("ErrImagePull", "not found"))},
			outcome{phase: v1.Scheduled, says: []string{"Synchronized=False ErrImagePull: not found", "Ready=False GuestNotRunning: not found"}},
		},
		"a sidecar's image can't be pulled: the guest's container waits for it": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("PodInitializing", ""), sidecarWaits("ErrImagePull", "not found"))},
			outcome{phase: v1.Scheduled, says: []string{"Synchronized=False ErrImagePull: not found", "Ready=False GuestNotRunning: not found"}},
		},
		"a sidecar does not stay up": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("PodInitializing", ""), sidecarWaits("CrashLoopBackOff", "back-off 10s"))},
			outcome{phase: v1.Scheduled, says: []string{"Synchronized=False CrashLoopBackOff: back-off 10s", "Ready=False GuestNotRunning: back-off 10s"}},
		},
		"a sidecar that is being made is no news": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("PodInitializing", ""), sidecarWaits("PodInitializing", ""))},
			outcome{phase: v1.Scheduled, after: 10 * time.Second},
		},
		"a container that is being made is no news": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("ContainerCreating", ""))},
			outcome{phase: v1.Scheduled, after: 10 * time.Second},
		},
		"a pod that is being made for long: its events are asked": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute)), Pod: newPod(bound)},
			outcome{phase: v1.Scheduled, askWarning: true},
		},
		"at the very end of the time that a node has, its events are asked": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 10*time.Second)), Pod: newPod(bound)},
			outcome{phase: v1.Scheduled, askWarning: true},
		},
		"nothing is complained about: its node is asked for": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute)), Pod: newPod(bound), WarningAsked: true},
			outcome{phase: v1.Scheduled, askNode: true, after: preparationInterval},
		},
		"a volume can't be mounted: the kubelet's words": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute)), Pod: newPod(bound), NodeAsked: true, Node: answering, WarningAsked: true,
				Warning: &Warning{Reason: "FailedMount", Message: `MountVolume.SetUp failed for volume "vol-x" : secret "x" not found`}},
			outcome{phase: v1.Scheduled, after: 20 * time.Second, says: []string{
				`Synchronized=False FailedMount: MountVolume.SetUp failed for volume "vol-x" : secret "x" not found`,
				`Ready=False GuestNotRunning: MountVolume.SetUp failed for volume "vol-x" : secret "x" not found`,
			}},
		},
		"nothing is complained about: it is only slow": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute)), Pod: newPod(bound), NodeAsked: true, Node: answering, WarningAsked: true},
			outcome{phase: v1.Scheduled, after: 20 * time.Second},
		},
		"a warning that is no obstacle is left to the pod": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute)), Pod: newPod(bound), NodeAsked: true, Node: answering, WarningAsked: true, Warning: &Warning{Reason: "Unhealthy", Message: "x"}},
			outcome{phase: v1.Scheduled, after: 20 * time.Second},
		},
		"a pod that vanished under a guest is asked for first": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0))},
			outcome{ask: true, phase: v1.Running},
		},
		"the pod is really gone: its node is asked for": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), PodAsked: true},
			outcome{askNode: true, phase: v1.Running},
		},
		"a pod on a node that is lost is still there: nothing is assumed": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, terminating, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Running, says: []string{"Ready=False PodTerminating: the launcher pod pod is being deleted"}},
		},
		"a cache shows a pod that is not the one that was handed over: the API server is asked": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(func(p *corev1.Pod) { p.UID = "another" })},
			outcome{ask: true, phase: v1.Running},
		},
		"a pod that is not the one that was handed over: the VMI's own is gone": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(func(p *corev1.Pod) { p.UID = "another" }), PodAsked: true, NodeAsked: true, Node: fenced},
			outcome{phase: v1.Failed, reason: "LauncherPodGone", remove: true, says: []string{"Ready=False PodNotExists: The launcher pod is gone, and the guest has ended with it."}},
		},
		"the guest powered off while virt-handler was away": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, podPhase(corev1.PodSucceeded), exited(`{"reason":"GuestShutdown","code":0}`))},
			outcome{phase: v1.Succeeded, says: []string{"Ready=False GuestNotRunning: The VirtualMachineInstance was shut down."}},
		},
		"QEMU crashed while virt-handler was away": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, podPhase(corev1.PodFailed), exited(`{"reason":"Crashed","code":-1,"message":"segfault"}`))},
			outcome{phase: v1.Failed, reason: "Crashed", says: []string{"Ready=False GuestNotRunning: The VirtualMachineInstance crashed. QEMU said: segfault"}},
		},
		"the launcher was killed: failed, with the exit code": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, podPhase(corev1.PodFailed), exited(""))},
			outcome{phase: v1.Failed, reason: "LauncherPodFailed", says: []string{
				"Ready=False GuestNotRunning: The launcher's container ended with Error (exit code 1)."}},
		},
		"a final phase stays, whatever the pod says": {
			Observed{VMI: newVMI(inPhase(v1.Succeeded, time.Hour)), Pod: newPod(bound, podPhase(corev1.PodFailed))},
			outcome{phase: v1.Succeeded},
		},
		"a launcher that outlives its guest gets a moment": {
			Observed{VMI: newVMI(inPhase(v1.Failed, 4*time.Second)), Pod: newPod(bound, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Failed, after: 6 * time.Second},
		},
		"a launcher that outlives its guest for long is deleted": {
			Observed{VMI: newVMI(inPhase(v1.Failed, time.Minute)), Pod: newPod(bound, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Failed, remove: true},
		},
		"deleted before it had a pod: gone once that is sure": {
			Observed{VMI: newVMI(deleted(0))},
			outcome{ask: true},
		},
		"deleted and surely without a pod: gone": {
			Observed{VMI: newVMI(deleted(0)), PodAsked: true},
			outcome{freed: true},
		},
		"deleted while it waits for a node: the pod goes at once": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0), deleted(0)), Pod: newPod()},
			outcome{phase: v1.Scheduling, remove: true},
		},
		"deleted while the guest runs: virt-handler ends it": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0), deleted(3*time.Second)), Pod: newPod(bound, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Running, after: 7 * time.Second},
		},
		"deleted while the guest runs and virt-handler is away: the pod's own deletion ends it": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0), deleted(time.Minute)), Pod: newPod(bound, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Running, remove: true},
		},
		"the guest has ended: the pod goes": {
			Observed{VMI: newVMI(inPhase(v1.Succeeded, 0), deleted(0)), Pod: newPod(bound, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Succeeded, remove: true},
		},
		"the pod is on its way: the VMI stays until it can't run": {
			Observed{VMI: newVMI(inPhase(v1.Succeeded, 0), deleted(0)), Pod: newPod(bound, terminating, podPhase(corev1.PodRunning))},
			outcome{phase: v1.Succeeded},
		},
		"the pod has ended: the VMI goes, its phase told": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0), deleted(0)), Pod: newPod(bound, podPhase(corev1.PodSucceeded))},
			outcome{phase: v1.Succeeded, freed: true, says: []string{"Ready=False GuestNotRunning: The VirtualMachineInstance was shut down."}},
		},
	})
}

func judge(t *testing.T, tests map[string]testCase) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Now = now
			before := test.o.VMI.DeepCopy()
			plan := Decide(test.o)
			got := outcomeOf(plan)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(outcome{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the outcome differs from what is wanted (-):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.o.VMI); diff != "" {
				t.Errorf("the observation was changed:\n%s", diff)
			}
			if diff := cmp.Diff(before.Spec, plan.VMI.Spec); diff != "" {
				t.Errorf("the spec is planned, too:\n%s", diff)
			}
		})
	}
}

func TestScheduledNamesEverythingInOnePatch(t *testing.T) {
	vmi := Decide(Observed{VMI: newVMI(), Pod: newPod(bound), VMAsked: true, Now: now}).VMI
	if vmi.Status.NodeName != "node" || vmi.Labels[v1.NodeNameLabel] != "node" || vmi.Status.ActivePods["pod-uid"] != "node" {
		t.Errorf("the node is not named: %+v, labels %v", vmi.Status, vmi.Labels)
	}
	if vmi.Status.LauncherContainerImageVersion != "launcher:1" || vmi.Status.RuntimeUser != layout.QEMUUser || vmi.Status.QOSClass == nil {
		t.Errorf("the pod is not described: %+v", vmi.Status)
	}
	phases := vmi.Status.PhaseTransitionTimestamps
	if len(phases) != 3 || phases[0].Phase != v1.Pending || phases[1].Phase != v1.Scheduling || phases[2].Phase != v1.Scheduled {
		t.Errorf("phase times %+v", phases)
	}
}

func TestAPullThatWorksInTheEndIsNotComplainedAbout(t *testing.T) {
	vmi := Decide(Observed{VMI: newVMI(inPhase(v1.Scheduled, 0)), Pod: newPod(bound, waiting("ImagePullBackOff", "later")), Now: now}).VMI
	vmi = Decide(Observed{VMI: vmi, Pod: newPod(bound, compute(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), Now: now}).VMI
	if c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized); c != nil {
		t.Errorf("the complaint stays: %+v", c)
	}
}

func TestTheQOSClassIsThePods(t *testing.T) {
	for name, test := range map[string]struct{ pods, want corev1.PodQOSClass }{
		"the API server has set it":     {corev1.PodQOSGuaranteed, corev1.PodQOSGuaranteed},
		"it is not known of a new pod":  {"", corev1.PodQOSBurstable},
		"a pod without any reservation": {corev1.PodQOSBestEffort, corev1.PodQOSBestEffort},
	} {
		pod := newPod(bound, func(p *corev1.Pod) { p.Status.QOSClass = test.pods })
		vmi := Decide(Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: pod, VMAsked: true, Now: now}).VMI
		if got := vmi.Status.QOSClass; got == nil || *got != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

// The kubelet names another sandbox at every attempt, and each write would wake all watchers of the VMI. The condition
// must change once.
func TestASandboxThatCannotBeMadeIsSaidOnce(t *testing.T) {
	complain := func(vmi *v1.VirtualMachineInstance, reason, message string) *v1.VirtualMachineInstance {
		return Decide(Observed{VMI: vmi, Pod: newPod(bound), NodeAsked: true, Node: answering, WarningAsked: true,
			Warning: &Warning{Reason: reason, Message: message}, Now: now}).VMI
	}
	said := func(vmi *v1.VirtualMachineInstance) string {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		if c == nil {
			return ""
		}
		return c.Reason + ": " + c.Message
	}
	const sandbox, mount = "FailedCreatePodSandBox", "FailedMount"
	steps := []struct{ reason, message, want string }{
		{mount, "no such secret", "FailedMount: no such secret"},
		{mount, "no such key", "FailedMount: no such key"},
		{sandbox, "sandbox 1 failed", "FailedCreatePodSandBox: sandbox 1 failed"},
		{sandbox, "sandbox 2 failed", "FailedCreatePodSandBox: sandbox 1 failed"},
		{mount, "no such secret", "FailedMount: no such secret"},
		{sandbox, "sandbox 3 failed", "FailedCreatePodSandBox: sandbox 3 failed"},
	}
	vmi := newVMI(inPhase(v1.Scheduled, time.Minute))
	for i, step := range steps {
		vmi = complain(vmi, step.reason, step.message)
		if got := said(vmi); got != step.want {
			t.Errorf("complaint %d: %q, want %q", i+1, got, step.want)
		}
	}
}

func TestFinalizersOfOthersStay(t *testing.T) {
	for name, test := range map[string]struct{ has, want []string }{
		"only virt-controller's":           {[]string{v1.VirtualMachineInstanceFinalizer}, nil},
		"the one of an earlier KubeVirt":   {[]string{v1.DeprecatedVirtualMachineInstanceFinalizer}, nil},
		"both, and one of somebody else's": {[]string{v1.DeprecatedVirtualMachineInstanceFinalizer, "example.com/backup", v1.VirtualMachineInstanceFinalizer}, []string{"example.com/backup"}},
	} {
		vmi := newVMI(deleted(0))
		vmi.Finalizers = test.has
		got := Decide(Observed{VMI: vmi, PodAsked: true, Now: now}).VMI.Finalizers
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestTheEarlierOfTwoLooksCounts(t *testing.T) {
	for name, test := range map[string]struct{ first, second, want time.Duration }{
		"only the first is wanted":  {time.Minute, 0, time.Minute},
		"only the second is wanted": {0, time.Minute, time.Minute},
		"the first is earlier":      {time.Second, time.Minute, time.Second},
		"the second is earlier":     {time.Minute, time.Second, time.Second},
		"none is wanted":            {0, 0, 0},
	} {
		d := &decision{}
		d.requeueAfter(test.first)
		d.requeueAfter(test.second)
		if d.p.After != test.want {
			t.Errorf("%s: after %s, want %s", name, d.p.After, test.want)
		}
	}
}

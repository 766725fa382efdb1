package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func node(ready corev1.ConditionStatus, ago time.Duration) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
		LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	}}}}
}

var (
	answering = node(corev1.ConditionTrue, 24*time.Hour)
	silent    = node(corev1.ConditionUnknown, time.Minute)
	// fenced is a node of which somebody has declared that nothing runs on it.
	fenced = func() *corev1.Node {
		n := node(corev1.ConditionUnknown, time.Hour)
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
		return n
	}()
)

// missed is a VMI whose pod was found to be gone this long ago.
func missed(ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.NodeName = "node"
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
			Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: "PodNotExists", Message: "gone",
			LastProbeTime: metav1.NewTime(now.Add(-ago)),
		}}
	}
}

func onNode(vmi *v1.VirtualMachineInstance) { vmi.Status.NodeName = "node" }

// whole is how long the guest of a VMI without a grace period of its own may outlive its pod's object: 30 s for the
// guest, 15 for the launcher, 15 for the kubelet.
const whole = time.Minute

func TestAPodThatVanishesUnderAGuest(t *testing.T) {
	const (
		ending = "Ready=False PodNotExists: the launcher pod is gone; its guest is given the time to end on node node"
		gone   = "Ready=False PodNotExists: The launcher pod is gone, and the guest has ended with it."
		dark   = "Ready=Unknown PodNotExists: the launcher pod is gone, and node node does not answer " +
			"(NodeStatusUnknown: Kubelet stopped posting node status.): whether the guest runs is not known; " +
			"if the node is off, give it the taint node.kubernetes.io/out-of-service"
	)
	absent := func(n *corev1.Node, edits ...func(*v1.VirtualMachineInstance)) Observed {
		edits = append([]func(*v1.VirtualMachineInstance){inPhase(v1.Running, time.Hour), onNode}, edits...)
		return Observed{VMI: newVMI(edits...), PodAsked: true, NodeAsked: true, Node: n}
	}
	failed := outcome{phase: v1.Failed, reason: "LauncherPodGone", says: []string{gone}}
	failedAndFreed := failed
	failedAndFreed.freed = true
	judge(t, map[string]testCase{
		"it is missed first: the guest is given the time that its pod would have had": {
			absent(answering), outcome{phase: v1.Running, after: whole, says: []string{ending}}},
		"a moment before that time is over": {
			absent(answering, missed(whole-time.Second)), outcome{phase: v1.Running, after: time.Second, says: []string{ending}}},
		"that time is over on a node that answers: failed": {
			absent(answering, missed(whole)), failed},
		"the node has answered again for a short while only: its kubelet has just heard of it": {
			absent(node(corev1.ConditionTrue, 10*time.Second), missed(time.Hour)),
			outcome{phase: v1.Running, after: whole - 10*time.Second, says: []string{ending}}},
		"the node does not answer: nothing is assumed, however long ago it was": {
			absent(silent, missed(time.Hour)), outcome{phase: v1.Running, after: 15 * time.Second, says: []string{dark}}},
		"the node is declared out of service: failed at once": {
			absent(fenced), failed},
		"the node was taken out of the cluster: the time counts": {
			absent(nil, missed(whole-time.Second)), outcome{phase: v1.Running, after: time.Second, says: []string{ending}}},
		"the node was taken out of the cluster, and the time is over": {
			absent(nil, missed(whole)), failed},
		"a VMI that is to go keeps its finalizer meanwhile": {
			absent(answering, deleted(time.Minute)), outcome{phase: v1.Running, after: whole, says: []string{ending}}},
		"a VMI that is to go, on a node that does not answer, stays": {
			absent(silent, deleted(time.Hour), missed(time.Hour)), outcome{phase: v1.Running, after: 15 * time.Second, says: []string{dark}}},
		"a VMI that is to go may go when the time is over": {
			absent(answering, deleted(time.Hour), missed(whole)), failedAndFreed},
		"virt-handler has said that the guest has ended: a VMI that is to go may go": {
			Observed{VMI: newVMI(inPhase(v1.Failed, 0), deleted(0)), PodAsked: true}, outcome{phase: v1.Failed, freed: true}},
		"a guest that may just be starting is a guest": {
			Observed{VMI: newVMI(inPhase(v1.Scheduled, 0), onNode), PodAsked: true, NodeAsked: true, Node: answering},
			outcome{phase: v1.Scheduled, after: whole, says: []string{ending}}},
	})
}

// A kubelet without a connection may have started processes that the API server does not know.
func TestAPodThatWasNeverSeenToStartIsWaitedForOnADeadNode(t *testing.T) {
	unanswered := "node node does not answer (NodeStatusUnknown: Kubelet stopped posting node status.); "
	scheduled := func(n *corev1.Node, edits ...func(*corev1.Pod)) Observed {
		return Observed{VMI: newVMI(inPhase(v1.Scheduled, time.Minute), onNode), Pod: newPod(append(edits, bound)...), NodeAsked: true, Node: n, WarningAsked: true}
	}
	dark := outcome{phase: v1.Scheduled, after: preparationInterval, says: []string{"Ready=False NodeLost: " + unanswered +
		"whether it has started the launcher pod pod is not known; if the node is off, give it the taint node.kubernetes.io/out-of-service"}}
	recovered := scheduled(answering)
	condition.Set(&recovered.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: vmistatus.ReasonNodeLost}, now)
	unasked := scheduled(nil, terminating)
	unasked.NodeAsked = false
	judge(t, map[string]testCase{
		"the node does not answer":                  {scheduled(silent), dark},
		"it has only just stopped answering":        {scheduled(node(corev1.ConditionUnknown, time.Second)), outcome{phase: v1.Scheduled, after: preparationInterval}},
		"the node answers again":                    {recovered, outcome{phase: v1.Scheduled, after: preparationInterval, says: []string{saysWaiting}}},
		"the pod is evicted: the node is asked for": {unasked, outcome{phase: v1.Scheduled, askNode: true}},
		"the pod is evicted from a dead node, and stays": {scheduled(silent, terminating), outcome{phase: v1.Scheduled, after: 15 * time.Second, says: []string{
			"Ready=Unknown PodTerminating: the launcher pod pod is being deleted, and " + unanswered + "how the guest is, is not known"}}},
	})
}

func TestWhenThePodWasMissedIsKept(t *testing.T) {
	o := Observed{VMI: newVMI(inPhase(v1.Running, time.Hour), onNode), PodAsked: true, NodeAsked: true, Node: answering, Now: now}
	vmi := Decide(o).VMI
	o.VMI, o.Now = vmi, now.Add(40*time.Second)
	o.Node = silent
	vmi = Decide(o).VMI
	o.VMI, o.Node = vmi, answering
	if p := Decide(o); p.After != whole-40*time.Second {
		t.Errorf("after 40 s it waits for %s, want %s", p.After, whole-40*time.Second)
	}
}

func TestWhatKeepsAGuestFromBeingReady(t *testing.T) {
	// Kubernetes does this to the pods of a node that does not answer.
	unready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	}
	probing := func(p *corev1.Pod) {
		unready(p)
		p.Status.Conditions[1].Status = corev1.ConditionFalse
	}
	ready := func(p *corev1.Pod) {
		unready(p)
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	halfSaid := func(p *corev1.Pod) {
		unready(p)
		p.Status.Conditions = p.Status.Conditions[1:]
	}
	const unanswered = "node node does not answer (NodeStatusUnknown: Kubelet stopped posting node status.); how the guest is, is not known"
	running := func(edits ...func(*corev1.Pod)) Observed {
		return Observed{VMI: newVMI(inPhase(v1.Running, 0), onNode), Pod: newPod(append(edits, bound, podPhase(corev1.PodRunning))...)}
	}
	asked := func(o Observed, n *corev1.Node) Observed {
		o.NodeAsked, o.Node = true, n
		return o
	}
	judge(t, map[string]testCase{
		"a guest that runs": {running(), outcome{phase: v1.Running}},
		"its pod is being deleted": {running(terminating),
			outcome{phase: v1.Running, says: []string{"Ready=False PodTerminating: the launcher pod pod is being deleted"}}},
		"its pod is said not to be ready though its container is: the node is asked for": {
			running(unready), outcome{phase: v1.Running, askNode: true}},
		"its node does not answer": {asked(running(unready), silent),
			outcome{phase: v1.Running, says: []string{"Ready=False NodeLost: " + unanswered}}},
		"its node does not exist": {asked(running(unready), nil),
			outcome{phase: v1.Running, says: []string{"Ready=False NodeLost: node node does not answer (it does not exist); how the guest is, is not known"}}},
		"its node answers by now":                                      {asked(running(unready), answering), outcome{phase: v1.Running}},
		"a guest whose pod and container are ready":                    {running(ready), outcome{phase: v1.Running}},
		"a guest of whose pod only the container's readiness is known": {running(halfSaid), outcome{phase: v1.Running}},
		"its readiness probe fails: virt-handler says so": {
			running(probing), outcome{phase: v1.Running}},
		"its pod is being deleted on a node that does not answer": {asked(running(unready, terminating), silent),
			outcome{phase: v1.Running, says: []string{"Ready=Unknown PodTerminating: the launcher pod pod is being deleted, and " + unanswered}}},
	})
}

func TestWhatReadySaysIsReadBack(t *testing.T) {
	tests := map[string]struct {
		o                       Observed
		interrupted, unanswered bool
	}{
		"its pod is being deleted": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, terminating)}, true, false},
		"its pod is gone": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), PodAsked: true, NodeAsked: true, Node: answering}, true, false},
		"its pod is gone on a node that does not answer": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), PodAsked: true, NodeAsked: true, Node: silent}, true, true},
		"it waits for a node": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(unschedulable)}, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Now = now
			vmi := Decide(test.o).VMI
			if vmistatus.Interrupted(vmi) != test.interrupted || vmistatus.Unanswered(vmi) != test.unanswered {
				t.Errorf("interrupted %v, unanswered %v of %+v", vmistatus.Interrupted(vmi), vmistatus.Unanswered(vmi), vmi.Status.Conditions)
			}
		})
	}
	ready := newVMI(inPhase(v1.Running, 0))
	condition.Set(&ready.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}, now)
	if vmistatus.Interrupted(ready) || vmistatus.Unanswered(ready) {
		t.Error("a VMI that is Ready is neither")
	}
}

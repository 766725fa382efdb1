package vmilife

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/launcherpod"
	"drydock.dev/drydock/internal/placement"
)

// ReasonNodeLost is the condition Ready's reason while the VMI's node does not
// answer: Kubernetes' own word for the pods of such a node.
const ReasonNodeLost = "NodeLost"

const (
	// kubeletMargin is what a kubelet may take, beyond the grace period of a pod,
	// to notice that the pod's object is gone and to end its processes.
	kubeletMargin = 15 * time.Second
	// nodePause is when a node that does not answer is looked at again.
	nodePause = 15 * time.Second
)

// Interrupted reports, from what a VMI's condition Ready says, whether its
// launcher pod is being deleted or is gone: the guest ends, and nothing takes
// that back.
func Interrupted(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && c.Status != corev1.ConditionTrue &&
		(c.Reason == v1.PodTerminatingReason || c.Reason == v1.PodNotExistsReason)
}

// Unanswered reports whether the VMI's node does not answer, so that nobody knows
// how its guest is.
func Unanswered(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && !vmi.IsFinal() && (c.Reason == ReasonNodeLost || c.Status == corev1.ConditionUnknown)
}

// MarksNodeLost reports whether Kubernetes has marked the pod as one of a node
// that does not answer: it takes the pod's condition Ready away, which the
// containers' own readiness does not explain. The kubelet gives it back.
func MarksNodeLost(pod *corev1.Pod) bool {
	ready, containers := podCondition(pod, corev1.PodReady), podCondition(pod, corev1.ContainersReady)
	return ready != nil && ready.Status == corev1.ConditionFalse &&
		containers != nil && containers.Status == corev1.ConditionTrue
}

// decideVanished looks after a VMI whose pod's object is gone while, as far as is
// known, its guest runs. The kubelet needs the pod's grace period to end a pod
// that was deleted by force. virt-handler, which ends the guest too, says when it
// has ended, and this is not come to then. Without its word the VMI has failed
// once that time has passed on a node that answers. It reports whether it has.
//
// A node that does not answer may run the guest for as long as it likes. The VMI
// waits until the node answers again, or is declared out of service, or does not
// exist any more.
func decideVanished(o Observed, p *Plan) bool {
	if !o.NodeAsked {
		p.AskForNode = true
		return false
	}
	status, message := corev1.ConditionFalse, fmt.Sprintf("the launcher pod is gone; its guest is given the time to end on node %s", o.VMI.Status.NodeName)
	since := missedSince(o.VMI, o.Now)
	ready, why := nodeReady(o.Node)
	switch {
	case outOfService(o.Node):
		finish(p.VMI, o, podGone)
		return true
	case ready == nil && o.Node != nil, ready != nil && ready.Status != corev1.ConditionTrue:
		status, message = corev1.ConditionUnknown, fmt.Sprintf(
			"the launcher pod is gone, and node %s does not answer (%s): whether the guest runs is not known; "+
				"if the node is off, give it the taint %s", o.VMI.Status.NodeName, why, corev1.TaintNodeOutOfService)
		p.After = nodePause
	default:
		if ready != nil && ready.LastTransitionTime.After(since) {
			since = ready.LastTransitionTime.Time
		}
		if p.After = since.Add(endsWithin(o.VMI)).Sub(o.Now); p.After <= 0 {
			p.After = 0
			finish(p.VMI, o, podGone)
			return true
		}
	}
	reportMissed(p.VMI, o, status, message)
	return false
}

// endsWithin is how long a guest may outlive its pod's object on a node that
// answers.
func endsWithin(vmi *v1.VirtualMachineInstance) time.Duration {
	return time.Duration(launcherpod.PodGracePeriodSeconds(vmi))*time.Second + kubeletMargin
}

// missedSince is when the pod was first found to be gone. The condition Ready
// keeps it as the time of its last probe.
func missedSince(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	if c != nil && c.Reason == v1.PodNotExistsReason && !c.LastProbeTime.IsZero() {
		return c.LastProbeTime.Time
	}
	return now
}

func reportMissed(vmi *v1.VirtualMachineInstance, o Observed, status corev1.ConditionStatus, message string) {
	since := missedSince(vmi, o.Now)
	condition.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: status, Reason: v1.PodNotExistsReason, Message: message,
	}, o.Now)
	condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady).LastProbeTime = metav1.NewTime(since.Truncate(time.Second))
}

// reportInterrupted says what keeps a guest that may run from being Ready: its
// pod is being deleted, or its node does not answer. Kubernetes marks no pod as
// lost whose container it has not seen running, so the node is asked for.
func reportInterrupted(o Observed, p *Plan) {
	unseen := o.VMI.Status.Phase == v1.Scheduled && beingMade(o.Pod)
	lost := MarksNodeLost(o.Pod) || unseen
	if lost && !o.NodeAsked {
		p.AskForNode = true
		return
	}
	if unseen {
		p.After = nodePause
	}
	ready, why := nodeReady(o.Node)
	lost = lost && (ready == nil || ready.Status != corev1.ConditionTrue)
	c := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse}
	silent := fmt.Sprintf("node %s does not answer (%s); how the guest is, is not known", o.VMI.Status.NodeName, why)
	switch {
	case o.Pod.DeletionTimestamp != nil && lost:
		c.Status, c.Reason = corev1.ConditionUnknown, v1.PodTerminatingReason
		c.Message = fmt.Sprintf("the launcher pod %s is being deleted, and %s", o.Pod.Name, silent)
	case o.Pod.DeletionTimestamp != nil:
		c.Reason, c.Message = v1.PodTerminatingReason, fmt.Sprintf("the launcher pod %s is being deleted", o.Pod.Name)
	case lost:
		c.Reason, c.Message = ReasonNodeLost, silent
	default:
		return
	}
	condition.Set(&p.VMI.Status.Conditions, c, o.Now)
}

// reportUnprepared says that the node which is to prepare the pod, and has complained
// about nothing, does not answer; and takes that back. That the API server knows of no
// container does not mean that there is none: a kubelet that is cut off may have
// started it. So the VMI waits as for a guest that runs.
func reportUnprepared(p *Plan, o Observed) {
	if !o.NodeAsked {
		p.AskForNode = true
		return
	}
	_, why := nodeReady(o.Node)
	if !placement.NodeLost(o.Node, o.Now) {
		told := condition.Find(p.VMI.Status.Conditions, v1.VirtualMachineInstanceReady)
		if told != nil && told.Reason == ReasonNodeLost {
			condition.Set(&p.VMI.Status.Conditions, notReady(guestNotRunning), o.Now)
		}
		return
	}
	condition.Set(&p.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: ReasonNodeLost,
		Message: fmt.Sprintf("node %s does not answer (%s); whether it has started the launcher pod %s is not known; if the node is off, give it the taint %s",
			o.VMI.Status.NodeName, why, o.Pod.Name, corev1.TaintNodeOutOfService),
	}, o.Now)
}

// nodeReady is the node's condition Ready, nil when it has none, and why it is
// not true, in words.
func nodeReady(node *corev1.Node) (*corev1.NodeCondition, string) {
	if node == nil {
		return nil, "it does not exist"
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c, fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
	}
	return nil, "it has never said that it is ready"
}

// outOfService reports whether somebody has declared that nothing runs on the
// node.
func outOfService(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

package vmilifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

const (
	// kubeletMargin is what a kubelet may take, beyond the grace period of a pod,
	// to notice that the pod's object is gone and to end its processes.
	kubeletMargin = 15 * time.Second
	// nodePause is when a node that does not answer is looked at again.
	nodePause = 15 * time.Second
	// gateIsClosed is the kubelet's reason for a pod that is not ready although its containers
	// are.
	gateIsClosed = "ReadinessGatesNotReady"
)

// MarksNodeLost reports whether Kubernetes has marked the pod as one of a node
// that does not answer: it takes the pod's condition Ready away, which neither the
// containers' own readiness explains nor a gate. The kubelet gives it back.
func MarksNodeLost(pod *corev1.Pod) bool {
	ready, containers := podstatus.Condition(pod, corev1.PodReady), podstatus.Condition(pod, corev1.ContainersReady)
	return ready != nil && ready.Status == corev1.ConditionFalse && ready.Reason != gateIsClosed &&
		containers != nil && containers.Status == corev1.ConditionTrue
}

// decideVanished looks after a VMI whose pod's object is gone while, as far as is
// known, its guest runs. The kubelet needs the pod's grace period to end a pod
// that was deleted by force. virt-handler, which ends the guest too, says when it
// has ended, and this is not come to then. Without its word the VMI has failed
// once that time has passed on a node that answers.
//
// A node that does not answer may run the guest for as long as it likes. The VMI
// waits until the node answers again, or is declared out of service, or does not
// exist any more.
func (d *decision) decideVanished() {
	o := &d.o
	if !o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	pod := d.pod(vmistatus.PodGone)
	pod.Since = vmistatus.MissedSince(o.VMI, o.Now)
	left, silent := leftOf(o.VMI, o.Node, pod.Since, o.Now)
	if left <= 0 {
		d.facts.End = vmistatus.EndOfPodGone()
		return
	}
	pod.Silent, d.p.After = silent, left
	d.facts.Pod = vmistatus.Known(pod)
}

// leftOf is after what time a guest is looked at again whose pod has been gone for a while;
// zero when it has ended by now. silent is why the node does not answer, "" when it does.
func leftOf(vmi *v1.VirtualMachineInstance, node *corev1.Node, since, now time.Time) (left time.Duration, silent string) {
	ready, why := nodeReady(node)
	switch {
	case outOfService(node):
		return 0, ""
	case ready == nil && node != nil, ready != nil && ready.Status != corev1.ConditionTrue:
		return nodePause, why
	case ready != nil && ready.LastTransitionTime.After(since):
		since = ready.LastTransitionTime.Time
	}
	return max(0, since.Add(endsWithin(vmi)).Sub(now)), ""
}

// endsWithin is how long a guest may outlive its pod's object on a node that
// answers.
func endsWithin(vmi *v1.VirtualMachineInstance) time.Duration {
	return time.Duration(launcherpod.PodGracePeriodSeconds(vmi))*time.Second + kubeletMargin
}

// reportInterrupted says what keeps a guest that may run from being Ready: its
// pod is being deleted, or its node does not answer. Kubernetes marks no pod as
// lost whose container it has not seen running, so the node is asked for.
func (d *decision) reportInterrupted() {
	o := &d.o
	unseen := o.VMI.Status.Phase == v1.Scheduled && beingMade(o.Pod)
	lost := MarksNodeLost(o.Pod) || unseen
	if lost && !o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	if unseen {
		d.p.After = nodePause
	}
	pod := d.pod(vmistatus.PodSilent)
	ready, why := nodeReady(o.Node)
	if lost = lost && (ready == nil || ready.Status != corev1.ConditionTrue); lost {
		pod.Silent = why
	}
	switch {
	case o.Pod.DeletionTimestamp != nil:
		pod.State = vmistatus.PodTerminating
	case !lost:
		return
	}
	d.facts.Pod = vmistatus.Known(pod)
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

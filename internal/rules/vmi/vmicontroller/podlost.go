package vmicontroller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const (
	// kubeletMargin is the kubelet's time beyond the grace period to end a pod whose object is gone.
	kubeletMargin = 15 * time.Second
	nodePause     = 15 * time.Second         // requeue interval for a node that does not answer
	gateIsClosed  = "ReadinessGatesNotReady" // the kubelet's reason for an unready pod with ready containers
)

// MarksNodeLost reports whether Kubernetes has marked the pod's node as lost: the pod is not Ready although its
// containers are, and no readiness gate explains it. The kubelet reverts it.
func MarksNodeLost(pod *corev1.Pod) bool {
	ready, containers := podstatus.Condition(pod, corev1.PodReady), podstatus.Condition(pod, corev1.ContainersReady)
	return ready != nil && ready.Status == corev1.ConditionFalse && ready.Reason != gateIsClosed &&
		containers != nil && containers.Status == corev1.ConditionTrue
}

// decideVanished gives the kubelet the grace period to end a pod that was deleted by force while its guest may run. Then
// the VMI has failed, if its node answers. A silent node may run the guest forever: the VMI waits until the node answers,
// is declared out of service, or is deleted.
func (d *decision) decideVanished() {
	o := &d.o
	if !o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	pod := d.podFact(vmistatus.PodGone)
	pod.Since = vmistatus.MissedSince(o.VMI, o.Now)
	left, silent := guestTimeLeft(o.VMI, o.Node, pod.Since, o.Now)
	if left <= 0 {
		d.facts.End = vmistatus.EndOfPodGone()
		return
	}
	pod.Silent, d.p.After = silent, left
	d.facts.Pod = vmistatus.Known(pod)
}

// guestTimeLeft returns when the guest of a gone pod is checked again, zero if it has ended.
func guestTimeLeft(vmi *v1.VirtualMachineInstance, node *corev1.Node, since, now time.Time) (left time.Duration, silent string) {
	ready, why := nodeReady(node)
	switch {
	case node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }):
		return 0, ""
	case ready == nil && node != nil, ready != nil && ready.Status != corev1.ConditionTrue:
		return nodePause, why
	case ready != nil && ready.LastTransitionTime.After(since):
		since = ready.LastTransitionTime.Time
	}
	grace := time.Duration(launcherpod.PodGracePeriodSeconds(vmi)) * time.Second
	return max(0, since.Add(grace+kubeletMargin).Sub(now)), ""
}

// Kubernetes only marks pods whose container it has seen running, so for others the node is read.
func (d *decision) reportInterrupted() {
	o := &d.o
	unseen := o.VMI.Status.Phase == v1.Scheduled && isBeingPrepared(o.Pod)
	lost := MarksNodeLost(o.Pod) || unseen
	if lost && !o.NodeAsked {
		d.p.Needs = NeedNode
		return
	}
	if unseen {
		d.p.After = nodePause
	}
	pod := d.podFact(vmistatus.PodSilent)
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

package placement

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// SelectedNodeAnnotation is the scheduler's node for a claim's storage; without it the scheduler chooses again.
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// SelectedNode returns the scheduler's node for an unbound claim, "" for none.
func SelectedNode(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil || claim.Status.Phase == corev1.ClaimBound || claim.Spec.VolumeName != "" {
		return ""
	}
	return claim.Annotations[SelectedNodeAnnotation]
}

// Choice is a claim for which the scheduler has selected a node, for any pod.
//
//	chosen ──(node is there)──> bound
//	   │  ^
//	   │  └─ every nodeCheck
//	   └──(node is lost, and no pod with the claim is on it)──> released: the
//	                                               scheduler chooses again
type Choice struct {
	Claim *corev1.PersistentVolumeClaim
	// Used means that a VMI that has not ended has the claim, or that a DataVolume fills it.
	Used bool
	// Node is from the API server, if NodeAsked; nil for none.
	Node      *corev1.Node
	NodeAsked bool
	// Holder is a pod for which Holds is true. It and Claim are from the API server, if ClaimAsked.
	Holder     string
	ClaimAsked bool
	Now        time.Time
}

// ChoiceQuestion can be answered only by the API server.
type ChoiceQuestion string

// The questions.
const (
	NeedNode  ChoiceQuestion = "the chosen node"
	NeedClaim ChoiceQuestion = "the claim and its pods"
)

// ChoicePlan is the result of DecideChoice.
type ChoicePlan struct {
	Needs ChoiceQuestion
	// Release removes the selected node if the claim is still the observed version.
	Release bool
	After   time.Duration
}

// DecideChoice returns the plan for a claim.
//
// A pod with a node keeps it: if the selected node of its unbound claim were removed, the scheduler would not select one
// again, and the pod could not start when its node comes back. So the choice stays until the pod is gone; package
// vmicontroller decides when that is certain for a launcher pod.
func DecideChoice(c Choice) ChoicePlan {
	switch {
	case !c.Used || SelectedNode(c.Claim) == "":
		return ChoicePlan{}
	case !c.NodeAsked:
		return ChoicePlan{Needs: NeedNode}
	case !NodeLost(c.Node, c.Now):
		return ChoicePlan{After: nodeCheck}
	case !c.ClaimAsked:
		return ChoicePlan{Needs: NeedClaim}
	case c.Holder != "":
		return ChoicePlan{After: nodeCheck}
	}
	return ChoicePlan{Release: true}
}

// Holds reports whether a pod with a node has the claim and has not ended.
func Holds(pod *corev1.Pod, claim string) bool {
	return pod.Spec.NodeName != "" && !podstatus.Terminal(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// nodePatience is how long the selected node may be NotReady. Kubernetes has waited for most of a minute before; a
// restarted kubelet is back in time (decision 131).
const nodePatience = 30 * time.Second

// NodeLost reports whether the node, nil for none, can't be expected to provide a claim's storage.
func NodeLost(node *corev1.Node, now time.Time) bool {
	if node == nil {
		return true
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) >= nodePatience
		}
	}
	return false
}

package placement

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/podstatus"
)

// SelectedNodeAnnotation is where the scheduler names for a provisioner the node on
// which a claim's storage is to be made. Removing it asks the scheduler
// to choose again.
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// SelectedNode is the node on which the scheduler wants the storage of a claim
// made that is not bound yet, empty for none.
func SelectedNode(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil || claim.Status.Phase == corev1.ClaimBound || claim.Spec.VolumeName != "" {
		return ""
	}
	return claim.Annotations[SelectedNodeAnnotation]
}

// Choice is a claim for whose storage the scheduler has chosen a node, for
// whichever pod: a provisioning pod, a launcher pod, a worker, an attachment pod.
//
//	chosen ──(node is there)──> bound
//	   │  ^
//	   │  └─ every nodeCheck
//	   └──(node is lost, and no pod with the claim is on it)──> released: the
//	                                               scheduler chooses again
//
// Nothing is recorded: after a crash of any part the next look finds the same.
type Choice struct {
	Claim *corev1.PersistentVolumeClaim
	// Used means that a VMI that has not ended is on the claim, or that a DataVolume
	// fills it.
	Used bool
	// Node is the chosen node, as the API server has said when NodeAsked; nil when
	// there is none.
	Node      *corev1.Node
	NodeAsked bool
	// Holder is the name of a pod that is on the claim, has a node and has not ended,
	// empty for none. It is the API server's word, and so is Claim, when ClaimAsked.
	Holder     string
	ClaimAsked bool
	Now        time.Time
}

// ChoiceQuestion is something that only the API server can answer.
type ChoiceQuestion string

const (
	// NeedNode asks for the chosen node.
	NeedNode ChoiceQuestion = "the chosen node"
	// NeedClaim asks for the claim, and for the pods that are on it.
	NeedClaim ChoiceQuestion = "the claim and its pods"
)

// ChoicePlan is what is to be done.
type ChoicePlan struct {
	// Needs is what has to be asked first: then this is no plan, and another one is to
	// be made.
	Needs ChoiceQuestion
	// Release takes the choice back, on condition that the claim is still the version
	// that was observed.
	Release bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// DecideChoice gives the plan for a claim.
//
// A pod that has its node is bound to it for good. Its claim is bound before, as a
// rule; where it is not, nobody would choose a node for it again if that was taken
// away, and the pod could not start when its node comes back. So the choice stays
// until that pod is gone: when that may be believed of a launcher pod is package
// vmilifecycle's.
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

// Holds reports whether a pod that is on the claim has its node and has not ended.
func Holds(pod *corev1.Pod, claim string) bool {
	return pod.Spec.NodeName != "" && !podstatus.Terminal(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// nodePatience is how long a node that the scheduler has settled on may be away
// before the choice is taken back. Kubernetes has waited most of a minute by
// then for a sign of life; a kubelet that restarts is back within this (decision 233).
const nodePatience = 30 * time.Second

// NodeLost reports whether a node, nil when there is none, can't be expected to
// make a claim's storage.
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

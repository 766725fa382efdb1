package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// chosen is a claim for which the scheduler has chosen a node.
func chosen(edit func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := claimOf("a", unbound)
	claim.Annotations = map[string]string{SelectedNodeAnnotation: "node-1"}
	edit(claim)
	return claim
}

func readyNode(status corev1.ConditionStatus, ago time.Duration) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
	}}}
}

func TestWhenAChoiceIsTakenBack(t *testing.T) {
	waiting := chosen(func(*corev1.PersistentVolumeClaim) {})
	dead := readyNode(corev1.ConditionUnknown, time.Minute)
	tests := map[string]struct {
		c    Choice
		want ChoicePlan
	}{
		"the claim is gone": {Choice{Used: true}, ChoicePlan{}},
		"no node is chosen": {Choice{Used: true, Claim: claimOf("a", unbound)}, ChoicePlan{}},
		"the claim is bound": {
			Choice{Used: true, Claim: chosen(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = bound })}, ChoicePlan{}},
		"the claim has its volume and is just being bound": {
			Choice{Used: true, Claim: chosen(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" })}, ChoicePlan{}},
		"somebody else's claim": {Choice{Claim: waiting, NodeAsked: true}, ChoicePlan{}},
		"the node is asked for": {Choice{Used: true, Claim: waiting}, ChoicePlan{Needs: NeedNode}},
		"the node is well: it is looked at again": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, Node: readyNode(corev1.ConditionTrue, time.Hour)}, ChoicePlan{After: 15 * time.Second}},
		"the kubelet is restarting": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, Node: readyNode(corev1.ConditionFalse, 5*time.Second)}, ChoicePlan{After: 15 * time.Second}},
		"the node is dead: nothing is done on a cache's word": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, Node: dead}, ChoicePlan{Needs: NeedClaim}},
		"the node is gone: nothing is done on a cache's word": {
			Choice{Used: true, Claim: waiting, NodeAsked: true}, ChoicePlan{Needs: NeedClaim}},
		"the node is dead, and the claim waits": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, Node: dead, ClaimAsked: true}, ChoicePlan{Release: true}},
		"the node is gone, and the claim waits": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, ClaimAsked: true}, ChoicePlan{Release: true}},
		"another choice was made meanwhile": {
			Choice{Used: true, NodeAsked: true, ClaimAsked: true}, ChoicePlan{}},
		"it was bound meanwhile": {
			Choice{Used: true, NodeAsked: true, ClaimAsked: true, Claim: claimOf("a", bound)}, ChoicePlan{}},
		"a pod with the claim is on the node that is dead": {
			Choice{Used: true, Claim: waiting, NodeAsked: true, Node: dead, ClaimAsked: true, Holder: "virt-launcher-vm"}, ChoicePlan{After: 15 * time.Second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.c.Now = now
			if diff := cmp.Diff(test.want, DecideChoice(test.c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhichPodsHoldAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		node, claim string
		phase       corev1.PodPhase
		want        bool
	}{
		"it waits for a node":  {"", "a", corev1.PodPending, false},
		"it has its node":      {"node-1", "a", corev1.PodPending, true},
		"it runs":              {"node-1", "a", corev1.PodRunning, true},
		"it has ended":         {"node-1", "a", corev1.PodFailed, false},
		"it is on another one": {"node-1", "b", corev1.PodRunning, false},
		"it is on none at all": {"node-1", "", corev1.PodRunning, false},
	} {
		p := pod(c.phase, 0)
		p.Spec.NodeName = c.node
		p.Spec.Volumes = []corev1.Volume{{Name: "private"}}
		if c.claim != "" {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.claim}}})
		}
		if got := Holds(p, "a"); got != c.want {
			t.Errorf("%s: holds is %v", name, got)
		}
	}
}

func TestNodeLost(t *testing.T) {
	for name, c := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"ready":                         {readyNode(corev1.ConditionTrue, time.Hour), false},
		"its kubelet has just gone":     {readyNode(corev1.ConditionFalse, time.Second), false},
		"away for almost long enough":   {readyNode(corev1.ConditionUnknown, 30*time.Second-time.Millisecond), false},
		"away for just long enough":     {readyNode(corev1.ConditionUnknown, 30*time.Second), true},
		"it never said how it is":       {&corev1.Node{}, false},
		"nobody has heard of it lately": {readyNode(corev1.ConditionUnknown, time.Minute), true},
		"deleted":                       {nil, true},
	} {
		if got := NodeLost(c.node, now); got != c.want {
			t.Errorf("%s: lost is %v", name, got)
		}
	}
}

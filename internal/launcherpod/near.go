package launcherpod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Near restricts a pod to the nodes that all of homes select: where the disks
// are that are plugged once the guest runs. Such a disk is not among the pod's
// volumes, so the scheduler would not look for it by itself; and as one of them
// it would stay on the node after it was unplugged.
func Near(pod *corev1.Pod, homes []*corev1.NodeSelector) {
	if len(homes) == 0 {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := pod.Spec.Affinity.NodeAffinity
	if node.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	required := node.RequiredDuringSchedulingIgnoredDuringExecution
	for _, home := range homes {
		required.NodeSelectorTerms = both(required.NodeSelectorTerms, home.NodeSelectorTerms)
	}
}

// both are the terms of which one holds whenever one of a and one of b do.
func both(a, b []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	var out []corev1.NodeSelectorTerm
	for _, x := range a {
		for _, y := range b {
			out = append(out, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(x.MatchExpressions, y.MatchExpressions),
				MatchFields:      slices.Concat(x.MatchFields, y.MatchFields),
			})
		}
	}
	return out
}

package components

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// place narrows the nodes for the pods. The manifests' constraints stay, except for the value of a label that both
// name.
func place(pod *corev1.PodSpec, placement *v1.NodePlacement) {
	if len(placement.NodeSelector) > 0 {
		selector := maps.Clone(pod.NodeSelector)
		if selector == nil {
			selector = map[string]string{}
		}
		maps.Copy(selector, placement.NodeSelector)
		pod.NodeSelector = selector
	}
	pod.Tolerations = union(pod.Tolerations, placement.Tolerations)
	more := placement.Affinity
	if more == nil {
		return
	}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	affinity := pod.Affinity
	if n := more.NodeAffinity; n != nil {
		if affinity.NodeAffinity == nil {
			affinity.NodeAffinity = n
		} else {
			both := *affinity.NodeAffinity
			both.PreferredDuringSchedulingIgnoredDuringExecution = append(both.PreferredDuringSchedulingIgnoredDuringExecution, n.PreferredDuringSchedulingIgnoredDuringExecution...)
			both.RequiredDuringSchedulingIgnoredDuringExecution = bothSelectors(both.RequiredDuringSchedulingIgnoredDuringExecution, n.RequiredDuringSchedulingIgnoredDuringExecution)
			affinity.NodeAffinity = &both
		}
	}
	if p := more.PodAffinity; p != nil {
		if affinity.PodAffinity == nil {
			affinity.PodAffinity = &corev1.PodAffinity{}
		}
		into := affinity.PodAffinity
		into.RequiredDuringSchedulingIgnoredDuringExecution = append(into.RequiredDuringSchedulingIgnoredDuringExecution, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		into.PreferredDuringSchedulingIgnoredDuringExecution = append(into.PreferredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := more.PodAntiAffinity; p != nil {
		if affinity.PodAntiAffinity == nil {
			affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		into := affinity.PodAntiAffinity
		into.RequiredDuringSchedulingIgnoredDuringExecution = append(into.RequiredDuringSchedulingIgnoredDuringExecution, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		into.PreferredDuringSchedulingIgnoredDuringExecution = append(into.PreferredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
}

// bothSelectors returns the intersection: terms are alternatives, of which all requirements must hold.
func bothSelectors(a, b *corev1.NodeSelector) *corev1.NodeSelector {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := &corev1.NodeSelector{}
	for _, left := range a.NodeSelectorTerms {
		for _, right := range b.NodeSelectorTerms {
			out.NodeSelectorTerms = append(out.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: append(left.MatchExpressions[:len(left.MatchExpressions):len(left.MatchExpressions)], right.MatchExpressions...),
				MatchFields:      append(left.MatchFields[:len(left.MatchFields):len(left.MatchFields)], right.MatchFields...),
			})
		}
	}
	return out
}

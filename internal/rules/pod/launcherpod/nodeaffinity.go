package launcherpod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Volumes are restricted to nodes or zones, so one VM usually has a handful of terms.
const maxAffinityTerms = 256

// RequireNodes restricts a pod to the nodes that match all selectors. Disks that are hotplugged later restrict it so:
// as its volumes, they would stay on the node after they were unplugged. It fails if the intersection has too many
// terms.
func RequireNodes(pod *corev1.Pod, selectors []*corev1.NodeSelector) error {
	if len(selectors) == 0 {
		return nil
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := pod.Spec.Affinity.NodeAffinity
	required := node.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		required = selectors[0].DeepCopy()
		node.RequiredDuringSchedulingIgnoredDuringExecution = required
		selectors = selectors[1:]
	}
	for _, selector := range selectors {
		required.NodeSelectorTerms = intersect(required.NodeSelectorTerms, selector.NodeSelectorTerms)
		if n := len(required.NodeSelectorTerms); n > maxAffinityTerms {
			return fmt.Errorf("the volumes that are plugged once the guest runs restrict its nodes in %d ways together; at most %d can be given to the scheduler: "+
				"make some of them volumes that the guest starts with", n, maxAffinityTerms)
		}
	}
	return nil
}

// intersect returns terms that match a node if one of a and one of b do, without contradictory and redundant ones. If
// none remains, it returns an impossible one: the API server refuses a pod without any, and the scheduler reports the
// cause.
func intersect(a, b []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	var out []corev1.NodeSelectorTerm
	var impossible *corev1.NodeSelectorTerm
	for _, x := range a {
		for _, y := range b {
			term := corev1.NodeSelectorTerm{
				MatchExpressions: conjunction(x.MatchExpressions, y.MatchExpressions),
				MatchFields:      conjunction(x.MatchFields, y.MatchFields),
			}
			switch {
			case matchesNothing(x), matchesNothing(y):
				impossible = &corev1.NodeSelectorTerm{}
			case contradictory(term):
				impossible = &term
			case !slices.ContainsFunc(out, func(o corev1.NodeSelectorTerm) bool { return implies(term, o) }):
				out = slices.DeleteFunc(out, func(o corev1.NodeSelectorTerm) bool { return implies(o, term) })
				out = append(out, term)
			}
		}
	}
	if len(out) == 0 && impossible != nil {
		out = append(out, *impossible)
	}
	return out
}

// matchesNothing reports whether a term is empty, which to the scheduler matches no node.
func matchesNothing(term corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
}

// conjunction merges two In requirements for one key into their common values, if there are any, and drops duplicates.
func conjunction(a, b []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	var out []corev1.NodeSelectorRequirement
	for _, r := range slices.Concat(a, b) {
		i := slices.IndexFunc(out, func(o corev1.NodeSelectorRequirement) bool {
			return o.Key == r.Key && o.Operator == corev1.NodeSelectorOpIn && r.Operator == corev1.NodeSelectorOpIn
		})
		if i >= 0 {
			if common := commonValues(out[i].Values, r.Values); len(common) > 0 {
				out[i].Values = common
				continue
			}
		}
		if !slices.ContainsFunc(out, func(o corev1.NodeSelectorRequirement) bool { return sameRequirement(o, r) }) {
			out = append(out, r)
		}
	}
	return out
}

func commonValues(a, b []string) []string {
	var out []string
	for _, v := range a {
		if slices.Contains(b, v) && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// contradictory reports whether a term has two In requirements for one key: conjunction found no common value.
func contradictory(term corev1.NodeSelectorTerm) bool {
	for _, requirements := range [][]corev1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
		seen := map[string]bool{}
		for _, r := range requirements {
			if r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if seen[r.Key] {
				return true
			}
			seen[r.Key] = true
		}
	}
	return false
}

// implies reports whether every node that matches a matches b. It may miss some cases.
func implies(a, b corev1.NodeSelectorTerm) bool {
	return allImplied(a.MatchExpressions, b.MatchExpressions) && allImplied(a.MatchFields, b.MatchFields)
}

func allImplied(a, b []corev1.NodeSelectorRequirement) bool {
	for _, wanted := range b {
		if !slices.ContainsFunc(a, func(r corev1.NodeSelectorRequirement) bool { return requirementImplies(r, wanted) }) {
			return false
		}
	}
	return true
}

func requirementImplies(a, b corev1.NodeSelectorRequirement) bool {
	if a.Key == b.Key && a.Operator == corev1.NodeSelectorOpIn && b.Operator == corev1.NodeSelectorOpIn {
		return len(commonValues(a.Values, b.Values)) == len(commonValues(a.Values, a.Values))
	}
	return sameRequirement(a, b)
}

func sameRequirement(a, b corev1.NodeSelectorRequirement) bool {
	return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(slices.Sorted(slices.Values(a.Values)), slices.Sorted(slices.Values(b.Values)))
}

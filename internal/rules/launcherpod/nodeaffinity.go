package launcherpod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxAffinityTerms bounds the terms of a launcher pod's required node affinity. The
// volumes of one VM are on nodes or in zones, and what they have in common is a
// handful of terms however many there are.
const maxAffinityTerms = 256

// RequireNodes restricts a pod to the nodes that all of the selectors select: where the disks
// are that are plugged once the guest runs. Such a disk is not among the pod's
// volumes, so the scheduler would not look for it by itself; and as one of them
// it would stay on the node after it was unplugged. It fails when what the
// selectors have in common can't be said in a bounded number of terms.
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

// intersect gives the terms of which one holds for a node whenever one of a and one
// of b do, without those that no node can fulfill and those that another implies.
// When nothing is left, one impossible term is: without any, the API server would
// refuse the pod, and the scheduler could not say what stands in the way.
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

// matchesNothing reports whether a term has no requirement: to the scheduler, no node
// fulfills it.
func matchesNothing(term corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
}

// conjunction gives the requirements of both, each of them once. What two ask of the
// same key by In becomes one: the values that both allow, as long as there is one.
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

// commonValues gives those of a that are in b as well.
func commonValues(a, b []string) []string {
	var out []string
	for _, v := range a {
		if slices.Contains(b, v) && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// contradictory reports whether a term asks two values of one label, which conjunction
// has left side by side.
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

// implies reports whether every node that fulfills a fulfills b, as far as their
// requirements show it.
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

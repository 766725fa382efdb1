package launcherpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func on(values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func selector(requirements ...corev1.NodeSelectorRequirement) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for _, r := range requirements {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}})
	}
	return s
}

func TestNear(t *testing.T) {
	fast := corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"fast"}}
	for name, test := range map[string]struct {
		own   *corev1.NodeSelector
		homes []*corev1.NodeSelector
		want  [][]corev1.NodeSelectorRequirement
	}{
		"a pod that may run anywhere":   {homes: []*corev1.NodeSelector{selector(on("a"))}, want: [][]corev1.NodeSelectorRequirement{{on("a")}}},
		"a pod with a wish of its own":  {own: selector(fast), homes: []*corev1.NodeSelector{selector(on("a"))}, want: [][]corev1.NodeSelectorRequirement{{fast, on("a")}}},
		"two disks":                     {homes: []*corev1.NodeSelector{selector(on("a", "b")), selector(on("b"))}, want: [][]corev1.NodeSelectorRequirement{{on("a", "b"), on("b")}}},
		"a disk that is in two places":  {own: selector(fast), homes: []*corev1.NodeSelector{selector(on("a"), on("b"))}, want: [][]corev1.NodeSelectorRequirement{{fast, on("a")}, {fast, on("b")}}},
		"a pod without disks to come":   {own: selector(fast), want: [][]corev1.NodeSelectorRequirement{{fast}}},
		"a pod without any wish or one": {},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if test.own != nil {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: test.own}}
			}
			Near(pod, test.homes)
			var got [][]corev1.NodeSelectorRequirement
			if a := pod.Spec.Affinity; a != nil {
				for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					got = append(got, term.MatchExpressions)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

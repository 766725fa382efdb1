package launcherpod

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
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

func repeat(s *corev1.NodeSelector, times int) []*corev1.NodeSelector {
	out := make([]*corev1.NodeSelector, times)
	for i := range out {
		out[i] = s
	}
	return out
}

// The scheduler must select the same nodes by the reduced terms as by the product of all terms.
func TestNearMeansTheSameAsTheProduct(t *testing.T) {
	nodes := map[string]*corev1.Node{}
	for _, host := range []string{"a", "b", "c"} {
		for _, disk := range []string{"fast", "slow"} {
			nodes[host+disk] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host + disk, Labels: map[string]string{corev1.LabelHostname: host, "disk": disk}}}
		}
	}
	propertytest.Check(t, func(t *rapid.T) {
		requirement := rapid.Custom(func(t *rapid.T) corev1.NodeSelectorRequirement {
			r := corev1.NodeSelectorRequirement{
				Key:      rapid.SampledFrom([]string{corev1.LabelHostname, "disk"}).Draw(t, "key"),
				Operator: rapid.SampledFrom([]corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists}).Draw(t, "operator"),
			}
			if r.Operator != corev1.NodeSelectorOpExists {
				r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "fast", "slow"}), 1, 3, rapid.ID).Draw(t, "values")
			}
			return r
		})
		term := rapid.Custom(func(t *rapid.T) corev1.NodeSelectorTerm {
			return corev1.NodeSelectorTerm{MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "requirements")}
		})
		selectors := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *corev1.NodeSelector {
			return &corev1.NodeSelector{NodeSelectorTerms: rapid.SliceOfN(term, 1, 3).Draw(t, "terms")}
		}), 1, 4).Draw(t, "homes")
		pod := &corev1.Pod{}
		if err := RequireNodes(pod, selectors); err != nil {
			t.Fatal(err)
		}
		for name, node := range nodes {
			want := true
			for _, selector := range selectors {
				want = want && matches(t, selector, node)
			}
			if got := matches(t, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node); got != want {
				t.Fatalf("node %s: the pod may run there is %v, want %v", name, got, want)
			}
		}
	})
}

func matches(t *rapid.T, selector *corev1.NodeSelector, node *corev1.Node) bool {
	compiled, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Match(node)
}

func TestTooManyWaysToRestrictAPodAreRefused(t *testing.T) {
	var selectors []*corev1.NodeSelector
	for i := range 16 {
		label := corev1.NodeSelectorRequirement{Key: fmt.Sprintf("disk-%d", i), Operator: corev1.NodeSelectorOpExists}
		other := corev1.NodeSelectorRequirement{Key: fmt.Sprintf("disk-%d-other", i), Operator: corev1.NodeSelectorOpExists}
		selectors = append(selectors, selector(label, other))
	}
	if err := RequireNodes(&corev1.Pod{}, selectors); err == nil || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("65,536 terms: %v", err)
	}
	pod := &corev1.Pod{}
	if err := RequireNodes(pod, selectors[:8]); err != nil {
		t.Errorf("256 terms: %v", err)
	} else if n := len(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms); n != 256 {
		t.Errorf("eight times two ways are %d terms, want 256", n)
	}
}

// all returns a term with all of the requirements.
func all(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

// named returns a term for the nodes of these names.
func named(nodes ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: nodes},
	}}
}

// The scheduler lists the obstacles term by term, so there must be no more terms than necessary.
func TestWhatTwoDisksHaveInCommon(t *testing.T) {
	ssd := corev1.NodeSelectorRequirement{Key: "ssd", Operator: corev1.NodeSelectorOpExists}
	gpu := corev1.NodeSelectorRequirement{Key: "gpu", Operator: corev1.NodeSelectorOpExists}
	notA := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a", "b"}}
	notB := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b", "a"}}
	terms := func(list ...corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm { return list }
	for name, test := range map[string]struct{ a, b, want []corev1.NodeSelectorTerm }{
		"one place, of two in which the other may be":    {terms(all(ssd, on("a"))), terms(all(on("b")), all(on("a"))), terms(all(ssd, on("a")))},
		"one place or a label, and the place is another": {terms(all(ssd, on("a"))), terms(all(on("b")), all(gpu)), terms(all(ssd, on("a"), gpu))},
		"several labels of one node": {
			terms(all(on("a", "b"), ssd)), terms(all(on("b"), gpu)), terms(all(on("b"), ssd, gpu)),
		},
		"the node of a name":            {terms(named("n1", "n2")), terms(named("n2", "n3")), terms(named("n2"))},
		"nodes of different names":      {terms(named("n1")), terms(named("n2")), terms(corev1.NodeSelectorTerm{MatchFields: append(named("n1").MatchFields, named("n2").MatchFields...)})},
		"a name in two of three places": {terms(named("n1")), terms(named("n2"), named("n1")), terms(named("n1"))},
		"a name and a label": {terms(named("n1")), terms(all(ssd)), terms(corev1.NodeSelectorTerm{
			MatchFields: named("n1").MatchFields, MatchExpressions: []corev1.NodeSelectorRequirement{ssd},
		})},
		"two names with one label":        {terms(all(ssd)), terms(named("n1"), named("n1", "n2")), terms(corev1.NodeSelectorTerm{MatchFields: named("n1", "n2").MatchFields, MatchExpressions: []corev1.NodeSelectorRequirement{ssd}})},
		"the same in another order":       {terms(all(notA)), terms(all(notB)), terms(all(notA))},
		"a label, once with another":      {terms(all(ssd)), terms(all(ssd), all(gpu)), terms(all(ssd))},
		"a term that no node fulfills":    {terms(corev1.NodeSelectorTerm{}, all(ssd)), terms(all(gpu)), terms(all(ssd, gpu))},
		"nothing but terms that none can": {terms(corev1.NodeSelectorTerm{}), terms(all(gpu)), terms(corev1.NodeSelectorTerm{})},
		"a place that is asked for twice": {terms(all(on("a", "a"))), terms(all(on("a"))), terms(all(on("a")))},
	} {
		if diff := cmp.Diff(test.want, intersect(test.a, test.b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNear(t *testing.T) {
	fast := corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"fast"}}
	for name, test := range map[string]struct {
		own   *corev1.NodeSelector
		homes []*corev1.NodeSelector
		want  [][]corev1.NodeSelectorRequirement
	}{
		"a pod that may run anywhere":  {homes: []*corev1.NodeSelector{selector(on("a"))}, want: [][]corev1.NodeSelectorRequirement{{on("a")}}},
		"a pod with a wish of its own": {own: selector(fast), homes: []*corev1.NodeSelector{selector(on("a"))}, want: [][]corev1.NodeSelectorRequirement{{fast, on("a")}}},
		"two disks":                    {homes: []*corev1.NodeSelector{selector(on("a", "b")), selector(on("b"))}, want: [][]corev1.NodeSelectorRequirement{{on("b")}}},
		"a disk that is in two places": {own: selector(fast), homes: []*corev1.NodeSelector{selector(on("a"), on("b"))}, want: [][]corev1.NodeSelectorRequirement{{fast, on("a")}, {fast, on("b")}}},
		"the same two places, often": {
			homes: repeat(selector(on("a"), on("b")), 16), want: [][]corev1.NodeSelectorRequirement{{on("a")}, {on("b")}},
		},
		"two places and a wish, often": {
			own: selector(fast), homes: repeat(selector(on("a"), on("b")), 16), want: [][]corev1.NodeSelectorRequirement{{fast, on("a")}, {fast, on("b")}},
		},
		"places of which one is in the other": {
			homes: []*corev1.NodeSelector{selector(on("a", "b", "c")), selector(on("a"), on("a", "b"))}, want: [][]corev1.NodeSelectorRequirement{{on("a", "b")}},
		},
		"places that have nothing in common": {
			homes: []*corev1.NodeSelector{selector(on("a")), selector(on("b"))}, want: [][]corev1.NodeSelectorRequirement{{on("a"), on("b")}},
		},
		"a pod without disks to come":   {own: selector(fast), want: [][]corev1.NodeSelectorRequirement{{fast}}},
		"a pod without any wish or one": {},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if test.own != nil {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: test.own}}
			}
			if err := RequireNodes(pod, test.homes); err != nil {
				t.Fatal(err)
			}
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

package launcherpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// A node without the profile must count only if the pod's selector allows it.
func TestWhichNodesAreAskedBeforePostCopy(t *testing.T) {
	pod := targetOf(t, "{domain: {memory: {guest: 1Gi}}, nodeSelector: {zone: a}}", Target{NodeSelector: map[string]string{"disk": "fast"}})
	nodes, err := NodesForPostCopy(pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit            func(labels.Set)
		lacking, usable bool
	}{
		"it has no profile":                       {func(labels.Set) {}, true, false},
		"it has the profile and userfaultfd":      {func(l labels.Set) { l[layout.PostCopyLabel] = "usable" }, false, true},
		"its kernel refuses":                      {func(l labels.Set) { l[layout.PostCopyLabel] = "unusable" }, false, false},
		"a value of another release":              {func(l labels.Set) { l[layout.PostCopyLabel] = "later" }, false, false},
		"it runs no guests":                       {func(l labels.Set) { l[v1.NodeSchedulable] = "false" }, false, false},
		"the VMI selects others":                  {func(l labels.Set) { l["zone"] = "b" }, false, false},
		"the migration selects others":            {func(l labels.Set) { delete(l, "disk") }, false, false},
		"the migration selects others, it can do": {func(l labels.Set) { delete(l, "disk"); l[layout.PostCopyLabel] = "usable" }, false, false},
	} {
		node := labels.Set{v1.NodeSchedulable: "true", "zone": "a", "disk": "fast", "other": "x"}
		for key, value := range pod.Spec.NodeSelector {
			node[key] = value
		}
		c.edit(node)
		if lacking, usable := nodes.Lacking.Matches(node), nodes.Usable.Matches(node); lacking != c.lacking || usable != c.usable {
			t.Errorf("%s: it lacks the profile: %v, it can be used: %v; want %v and %v", name, lacking, usable, c.lacking, c.usable)
		}
	}
}

func TestASelectorThatNoNodeCanMeetIsAnError(t *testing.T) {
	pod := targetOf(t, "domain: {memory: {guest: 1Gi}}", Target{NodeSelector: map[string]string{"disk": "not a value!"}})
	if nodes, err := NodesForPostCopy(pod); err == nil {
		t.Errorf("it selects %v", nodes)
	}
}

// The pods must differ only in the profile of the one container, and in the nodes.
func TestATargetPodThatMayHaveUserfaultfd(t *testing.T) {
	spec := `
domain: {memory: {guest: 1Gi}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 2, preference: {matchExpressions: [{key: rack, operator: Exists}]}}]
`
	want := targetOf(t, spec, Target{})
	got := want.DeepCopy()
	got.Spec.Containers = append(got.Spec.Containers, corev1.Container{Name: "sidecar", SecurityContext: &corev1.SecurityContext{}})
	if err := LetPostCopy(got); err != nil {
		t.Fatal(err)
	}
	node := want.Spec.Affinity.NodeAffinity
	terms := node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	terms[0].MatchExpressions = append(terms[0].MatchExpressions,
		corev1.NodeSelectorRequirement{Key: layout.PostCopyLabel, Operator: corev1.NodeSelectorOpExists})
	node.PreferredDuringSchedulingIgnoredDuringExecution = append(node.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: layout.PostCopyLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"usable"}}}}})
	want.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{
		Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("drydock/launcher-userfaultfd.json"),
	}
	want.Spec.Containers = append(want.Spec.Containers, corev1.Container{Name: "sidecar", SecurityContext: &corev1.SecurityContext{}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
	if of := got.Spec.SecurityContext.SeccompProfile; of == nil || of.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's own profile is %+v", of)
	}
}

// A pod must not get the profile if its nodes can't be restricted to those that have it.
func TestATargetPodWithTooManyTermsIsGivenNoProfile(t *testing.T) {
	pod := targetOf(t, "domain: {memory: {guest: 1Gi}}", Target{})
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = nil
	for i := range maxAffinityTerms + 1 {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{string(rune('a' + i))}}}})
	}
	if err := LetPostCopy(pod); err == nil || pod.Spec.Containers[0].SecurityContext.SeccompProfile != nil {
		t.Errorf("it was given the profile: %v", err)
	}
}

package hotplugpod

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

func TestHowABudgetIsFoundAndRestored(t *testing.T) {
	vmi := input().VMI
	someone := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "1", Controller: new(true)}}
	tests := map[string]struct {
		edit func(*policyv1.PodDisruptionBudget)
		want hotplug.BudgetState
	}{
		"as it was made": {func(*policyv1.PodDisruptionBudget) {}, hotplug.BudgetRight},
		"with a label and an annotation of somebody's": {func(b *policyv1.PodDisruptionBudget) {
			b.Labels["team"], b.Annotations = "a", map[string]string{"note": "x"}
		}, hotplug.BudgetRight},
		"with a second owner": {func(b *policyv1.PodDisruptionBudget) {
			b.OwnerReferences = append(b.OwnerReferences, metav1.OwnerReference{Kind: "ConfigMap", Name: "x", UID: "2"})
		}, hotplug.BudgetRight},
		"fewer pods are to be available": {func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(0)) }, hotplug.BudgetAltered},
		"some may be unavailable": {func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, new(intstr.FromString("100%"))
		}, hotplug.BudgetAltered},
		"other pods are selected": {func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "web" }, hotplug.BudgetAltered},
		"a condition is added to the selector": {func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}
		}, hotplug.BudgetAltered},
		"pods that are not ready are given up": {func(b *policyv1.PodDisruptionBudget) {
			b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
		}, hotplug.BudgetAltered},
		"its owner was taken away":   {func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences = nil }, hotplug.BudgetAltered},
		"its labels were taken away": {func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }, hotplug.BudgetAltered},
		"its labels and its owner were taken away: anybody's": {func(b *policyv1.PodDisruptionBudget) {
			b.Labels, b.OwnerReferences = nil, nil
		}, hotplug.BudgetForeign},
		"somebody else controls it":                {func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences = someone }, hotplug.BudgetForeign},
		"it belongs to an earlier VMI of the name": {func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences[0].UID = "earlier" }, hotplug.BudgetForeign},
		"it has the labels of another VMI and no owner": {func(b *policyv1.PodDisruptionBudget) {
			b.OwnerReferences, b.Labels[v1.CreatedByLabel] = nil, "another"
		}, hotplug.BudgetForeign},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			budget := Protection(vmi)
			test.edit(budget)
			before := budget.DeepCopy()
			if got := JudgeProtection(vmi, budget); got != test.want {
				t.Fatalf("found as %d, want %d", got, test.want)
			}
			if test.want == hotplug.BudgetForeign {
				return
			}
			if got := JudgeProtection(vmi, Restored(vmi, budget)); got != hotplug.BudgetRight {
				t.Errorf("restored it is found as %d", got)
			}
			if JudgeProtection(vmi, budget) != JudgeProtection(vmi, before) {
				t.Error("the observed budget was changed")
			}
		})
	}
	if got := JudgeProtection(vmi, nil); got != hotplug.BudgetAbsent {
		t.Errorf("none is found as %d", got)
	}
}

package evacuation

import (
	"math"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/launcherpod"
)

// BudgetName is the name of a namespace's budget.
const BudgetName = "drydock-guests"

// idle is how long a budget stays that no VMI needs, so that a VM which is restarted does not
// cost two writes.
const idle = 5 * time.Minute

// Budget keeps evictions from the launcher pods of a namespace whose guests are not to be
// stopped, while virt-api does not answer: no eviction is ever within it. Only
// virt-controller can make pods with these labels (config/rbac/pod-policy.yaml).
// See decision 310.
func Budget(namespace string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: BudgetName, Labels: map[string]string{v1.AppLabel: layout.LauncherApp}},
		Spec: policyv1.PodDisruptionBudgetSpec{
			// Only a number works for pods whose owner can't be scaled.
			MinAvailable: new(intstr.FromInt32(math.MaxInt32)),
			Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{v1.AppLabel: layout.LauncherApp, launcherpod.KeptLabel: ""},
				// Provisioning pods have none.
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1.CreatedByLabel, Operator: metav1.LabelSelectorOpExists}},
			},
		},
	}
}

// NeedsBudget reports whether a VMI has a guest that its namespace's budget is for, or is to
// have one.
func NeedsBudget(vmi *v1.VirtualMachineInstance) bool {
	return launcherpod.Kept(vmi) && !vmi.IsFinal() && vmi.DeletionTimestamp == nil
}

// BudgetStep is what is to be done about a budget.
type BudgetStep int

// The steps.
const (
	BudgetStay BudgetStep = iota
	BudgetMake
	BudgetRestore
	BudgetDelete
)

// DecideBudget plans for a namespace. budget is nil when there is none, and idleSince when it
// was seen first that no VMI needs it. after asks for another look, zero for none.
func DecideBudget(needed bool, budget *policyv1.PodDisruptionBudget, idleSince, now time.Time) (step BudgetStep, after time.Duration) {
	switch {
	case budget == nil && needed:
		return BudgetMake, 0
	case budget == nil:
		return BudgetStay, 0
	case !needed:
		if left := idleSince.Add(idle).Sub(now); left > 0 {
			return BudgetStay, left
		}
		return BudgetDelete, 0
	case !equality.Semantic.DeepEqual(budget.Spec, Budget(budget.Namespace).Spec):
		return BudgetRestore, 0
	}
	return BudgetStay, 0
}

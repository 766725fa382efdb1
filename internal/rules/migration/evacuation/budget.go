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
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// BudgetName is the name of a namespace's PodDisruptionBudget.
const BudgetName = "drydock-guests"

// idle is how long an unneeded budget stays: restarting a VM must not cost two writes.
const idle = 5 * time.Minute

// Budget returns the budget that protects a namespace's launcher pods while virt-api does not answer. Only
// virt-controller can create pods with these labels (config/rbac/pod-policy.yaml, decision 310).
func Budget(namespace string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: BudgetName, Labels: map[string]string{v1.AppLabel: layout.LauncherApp}},
		Spec: policyv1.PodDisruptionBudgetSpec{
			// Only a number works for pods whose owner can't be scaled.
			MinAvailable: new(intstr.FromInt32(math.MaxInt32)),
			Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{v1.AppLabel: layout.LauncherApp, launcherpod.KeptLabel: ""},
				// Provisioning pods don't have this label.
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1.CreatedByLabel, Operator: metav1.LabelSelectorOpExists}},
			},
		},
	}
}

// NeedsBudget reports whether the VMI has or will have a guest that the budget protects.
func NeedsBudget(vmi *v1.VirtualMachineInstance) bool {
	return launcherpod.Kept(vmi) && !vmi.IsFinal() && vmi.DeletionTimestamp == nil
}

// BudgetStep is an action on a budget.
type BudgetStep int

// The actions.
const (
	BudgetStay BudgetStep = iota
	BudgetMake
	BudgetRestore
	BudgetDelete
)

// DecideBudget plans for a namespace. budget is nil if it does not exist; idleSince is when it was first unneeded. after
// is the requeue delay, zero for none.
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

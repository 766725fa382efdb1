package hotplugpod

import (
	"math"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

// Protection returns the budget that keeps a drain from evicting the VMI's attachment pods before its guest has left
// the node. virt-controller deletes them, which is no eviction.
func Protection(vmi *v1.VirtualMachineInstance) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Name: Prefix(vmi), Namespace: vmi.Namespace, Labels: Labels(vmi), OwnerReferences: []metav1.OwnerReference{budgetOwner(vmi)},
		},
		Spec: protectionSpec(vmi),
	}
}

func budgetOwner(vmi *v1.VirtualMachineInstance) metav1.OwnerReference {
	owner := *metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)
	owner.BlockOwnerDeletion = nil
	return owner
}

func protectionSpec(vmi *v1.VirtualMachineInstance) policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{
		// Only a number works for pods whose owner can't be scaled.
		MinAvailable: new(intstr.FromInt32(math.MaxInt32)),
		Selector:     &metav1.LabelSelector{MatchLabels: Labels(vmi)},
	}
}

// JudgeProtection returns the state of the object with the budget's name, nil for none. It is the VMI's if
// the VMI controls it, or if it has no controller and the labels of Protection.
func JudgeProtection(vmi *v1.VirtualMachineInstance, budget *policyv1.PodDisruptionBudget) hotplug.BudgetState {
	if budget == nil {
		return hotplug.BudgetAbsent
	}
	owned, labeled := metav1.IsControlledBy(budget, vmi), hasLabels(budget, vmi)
	switch {
	case !owned && (metav1.GetControllerOf(budget) != nil || !labeled):
		return hotplug.BudgetForeign
	case owned && labeled && equality.Semantic.DeepEqual(budget.Spec, protectionSpec(vmi)):
		return hotplug.BudgetRight
	}
	return hotplug.BudgetAltered
}

// Restored returns the VMI's budget with the right spec. Others' additions, such as labels, stay.
func Restored(vmi *v1.VirtualMachineInstance, budget *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	out := budget.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for key, value := range Labels(vmi) {
		out.Labels[key] = value
	}
	if !metav1.IsControlledBy(out, vmi) {
		out.OwnerReferences = append(out.OwnerReferences, budgetOwner(vmi))
	}
	out.Spec = protectionSpec(vmi)
	return out
}

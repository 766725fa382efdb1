package vmilife

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/placement"
)

// scheduledCondition is the pod's condition of that name, on the VMI while its
// pod has no node.
const scheduledCondition = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)

// reportDisks says on the VMI what its disks wait for. Each condition is there
// only while it is so:
//
//	Synchronized False      claims are missing
//	DataVolumesReady False  DataVolumes are not filled
//	Provisioning True       the claims are being bound where the VMI fits
//	PodScheduled False      the scheduler finds no node for that, or there is none
func reportDisks(vmi *v1.VirtualMachineInstance, o Observed, disks placement.Plan) {
	conditions := &vmi.Status.Conditions
	said := disks.Message
	if disks.State == placement.Missing {
		missing := notSynchronized(ReasonPVCNotFound, claimsMissing(vmi.Namespace, placement.MissingClaims(o.Claims)))
		condition.Set(conditions, missing, o.Now)
		said = missing.Message
	} else {
		condition.Drop(conditions, v1.VirtualMachineInstanceSynchronized)
	}
	if placement.FilledByDataVolumes(o.Claims) && disks.State != placement.Divided {
		condition.Set(conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceDataVolumesReady, Status: corev1.ConditionFalse,
			Reason: v1.VirtualMachineInstanceReasonNotAllDVsReady, Message: said,
		}, o.Now)
	} else {
		condition.Drop(conditions, v1.VirtualMachineInstanceDataVolumesReady)
	}
	if disks.State == placement.Provisioning {
		condition.Set(conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceProvisioning, Status: corev1.ConditionTrue, Message: said,
		}, o.Now)
	} else {
		condition.Drop(conditions, v1.VirtualMachineInstanceProvisioning)
	}
	condition.Set(conditions, notReady(said), o.Now)
	reportPlace(vmi, o, disks)
}

// reportPlace says why there is no node for the VMI and its disks.
func reportPlace(vmi *v1.VirtualMachineInstance, o Observed, disks placement.Plan) {
	unplaced := v1.VirtualMachineInstanceCondition{Type: scheduledCondition, Status: corev1.ConditionFalse}
	switch {
	case disks.State == placement.Divided:
		unplaced.Reason, unplaced.Message = corev1.PodReasonUnschedulable, disks.Message
	case disks.State == placement.Provisioning && o.Provisioning != nil && placement.Ended(o.Provisioning):
		unplaced.Reason = corev1.PodReasonUnschedulable
		unplaced.Message = "the provisioning pod has ended and is made again: " + endOfProvisioning(o.Provisioning)
	case disks.State == placement.Provisioning && o.Provisioning != nil:
		reportVerdict(vmi, o.Provisioning, o)
		return
	default:
		condition.Drop(&vmi.Status.Conditions, scheduledCondition)
		return
	}
	condition.Set(&vmi.Status.Conditions, unplaced, o.Now)
	condition.Set(&vmi.Status.Conditions, notReady(unplaced.Message), o.Now)
}

func endOfProvisioning(pod *corev1.Pod) string {
	switch {
	case pod.Status.Message != "":
		return pod.Status.Message
	case pod.Status.Reason != "":
		return pod.Status.Reason
	}
	return "its container has ended"
}

// disksReady takes back what was said of the disks.
func disksReady(vmi *v1.VirtualMachineInstance, o Observed) {
	conditions := &vmi.Status.Conditions
	condition.Drop(conditions, v1.VirtualMachineInstanceProvisioning)
	condition.Drop(conditions, scheduledCondition)
	if !placement.FilledByDataVolumes(o.Claims) {
		condition.Drop(conditions, v1.VirtualMachineInstanceDataVolumesReady)
		return
	}
	condition.Set(conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceDataVolumesReady, Status: corev1.ConditionTrue,
		Reason: v1.VirtualMachineInstanceReasonAllDVsReady, Message: "all of the VMI's DataVolumes are filled",
	}, o.Now)
}

func claimsMissing(namespace string, claims []string) string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = namespace + "/" + claim
	}
	verb, they := "does", "it"
	if len(names) > 1 {
		verb, they = "do", "them"
	}
	return fmt.Sprintf("PVC %s %s not exist, waiting for %s to appear", strings.Join(names, ", "), verb, they)
}

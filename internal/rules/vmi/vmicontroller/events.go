package vmicontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Event is a Kubernetes event about a VMI, sent once.
type Event struct {
	Type, Reason, Action, Message string
}

// EventsOf returns events for a wait that may need the owner's help, and for a failure. Transient problems are only in
// the conditions, the launcher pod's creation in status.activePods.
func EventsOf(from, to *v1.VirtualMachineInstance) []Event {
	var out []Event
	if c := condition.Find(to.Status.Conditions, v1.VirtualMachineInstanceSynchronized); c != nil && c.Status == corev1.ConditionFalse {
		before := condition.Find(from.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		told := before != nil && before.Reason == c.Reason && before.Message == c.Message
		if !told && (c.Reason == vmistatus.ReasonFailedCreate || c.Reason == vmistatus.ReasonPVCNotFound) {
			out = append(out, Event{corev1.EventTypeWarning, c.Reason, "CreatePod", c.Message})
		}
	}
	if to.Status.Phase == v1.Failed && from.Status.Phase != v1.Failed {
		message := fmt.Sprintf("The virtual machine instance has failed: %s", to.Status.Reason)
		if c := condition.Find(to.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil && c.Message != "" {
			message = fmt.Sprintf("The virtual machine instance has failed: %s", c.Message)
		}
		reason := to.Status.Reason
		if vmistatus.StageOf(from.Status.Phase) == vmistatus.HandedOver {
			// virt-handler uses this reason for the end of a guest, and clients wait for it.
			reason = v1.Stopped.String()
		}
		out = append(out, Event{corev1.EventTypeWarning, reason, "Watch", message})
	}
	return out
}

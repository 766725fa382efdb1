package vmilifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Event is something that a VMI's owner is told once.
type Event struct {
	// Type is Normal or Warning; Action says what was being done.
	Type, Reason, Action, Message string
}

// EventsOf lists what is worth an event in a change of a VMI: that it waits for
// something that may need its owner, and that it has failed. What comes and
// goes by itself, such as the attempts to pull an image, is in the conditions
// only; that the launcher pod was made, which every VMI has in common, is in
// status.activePods, and virt-handler's event that the guest has started.
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
			// virt-handler's word for the end of a guest: clients wait for it, whoever has seen the end.
			reason = v1.Stopped.String()
		}
		out = append(out, Event{corev1.EventTypeWarning, reason, "Watch", message})
	}
	return out
}

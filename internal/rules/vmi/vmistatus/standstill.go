package vmistatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// standstills are the reasons of a guest that stands still and will not continue by itself soon.
var standstills = []string{
	runstate.ReasonPausedByUser, runstate.ReasonPausedIOError, runstate.ReasonPausedByWatchdog, runstate.ReasonPausedByDebugger,
	runstate.ReasonSuspended, runstate.ReasonUnknown,
}

// Standstill returns the reason for which the guest of a VMI stands still, one of a fixed list, or "".
func Standstill(vmi *v1.VirtualMachineInstance) string {
	if StageOf(vmi.Status.Phase) == Ended {
		return ""
	}
	if c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstancePaused); c != nil && c.Status == corev1.ConditionTrue && slices.Contains(standstills, c.Reason) {
		return c.Reason
	}
	// A guest that has suspended itself, or whose run state is unknown, is not Paused.
	if c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil && c.Status == corev1.ConditionFalse && slices.Contains(standstills, c.Reason) {
		return c.Reason
	}
	return ""
}

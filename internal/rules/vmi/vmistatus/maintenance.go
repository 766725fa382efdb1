package vmistatus

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// maintain starts over: nothing remains of an earlier guest and its pod.
func maintain(vmi *v1.VirtualMachineInstance, f Facts) v1.VirtualMachineInstanceStatus {
	status := v1.VirtualMachineInstanceStatus{Phase: vmi.Status.Phase}
	phase := v1.Pending
	if f.Maintain.Locked {
		phase = lock.Phase
	}
	if status.Phase == phase {
		status.PhaseTransitionTimestamps = vmi.Status.DeepCopy().PhaseTransitionTimestamps
	} else {
		begin(&status, phase, f.Now)
	}
	if ready := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady); ready != nil {
		status.Conditions = []v1.VirtualMachineInstanceCondition{*ready}
	}
	notRunning(f.Maintain.For).apply(&status.Conditions, v1.VirtualMachineInstanceReady, f.Now)
	return status
}

// begin sets the phase, whatever it was.
func begin(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, now time.Time) {
	status.Phase, status.PhaseTransitionTimestamps = phase, nil
	stamp(status, phase, now)
}

package verb

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Ready refuses a verb on a VMI whose guest does not run.
func Ready(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		return GuestConflict(vmi, "VMI is not running")
	}
	return nil
}

// Pause refuses a guest that can't be paused.
func Pause(vmi *v1.VirtualMachineInstance) error {
	if err := Ready(vmi); err != nil {
		return err
	}
	if vmi.Spec.LivenessProbe != nil {
		return apierrors.NewForbidden(v1.Resource("virtualmachineinstance"), vmi.Name,
			fmt.Errorf("%s", "Pausing VMIs with LivenessProbe is currently not supported"))
	}
	paused := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
	if paused != nil && paused.Status == corev1.ConditionTrue && paused.Reason != runstate.ReasonPausedIOError {
		return GuestConflict(vmi, "VMI is already paused")
	}
	return nil
}

// Unpause refuses a guest that runs. One that suspended itself wakes up.
func Unpause(vmi *v1.VirtualMachineInstance) error {
	if err := Ready(vmi); err != nil {
		return err
	}
	told := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	suspended := told != nil && told.Reason == runstate.ReasonSuspended
	if !suspended && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return GuestConflict(vmi, "VMI is not paused")
	}
	return nil
}

// SoftReboot refuses a guest that would not receive the request.
func SoftReboot(vmi *v1.VirtualMachineInstance) error {
	if err := Ready(vmi); err != nil {
		return err
	}
	if condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return GuestConflict(vmi, "VMI is paused")
	}
	features := vmi.Spec.Domain.Features
	noACPI := features != nil && features.ACPI.Enabled != nil && !*features.ACPI.Enabled
	if noACPI && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return GuestConflict(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")
	}
	return nil
}

// Reset refuses a guest that does not run.
func Reset(vmi *v1.VirtualMachineInstance) error { return Ready(vmi) }

// Agent refuses queries of a guest whose agent is not connected.
func Agent(vmi *v1.VirtualMachineInstance) error {
	if err := Ready(vmi); err != nil {
		return err
	}
	if !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return GuestConflict(vmi, "VMI does not have guest agent connected")
	}
	return nil
}

// Freeze refuses a guest whose agent is not connected, with KubeVirt's status code for that.
func Freeze(vmi *v1.VirtualMachineInstance) error {
	if err := Ready(vmi); err != nil {
		return err
	}
	if err := Agent(vmi); err != nil {
		// Clients of KubeVirt match this message.
		return apierrors.NewInternalError(errors.New("command Freeze failed: QEMU guest agent is not connected"))
	}
	return nil
}

// Console refuses a guest without a serial console. Clients interpret 400 as 'not yet' and retry.
func Console(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return apierrors.NewBadRequest("No serial consoles are present.")
	}
	return connectable(vmi)
}

// VNC refuses a guest without a screen.
func VNC(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return apierrors.NewBadRequest("No graphics devices are present.")
	}
	return connectable(vmi)
}

// PortForward refuses a guest that does not run.
func PortForward(vmi *v1.VirtualMachineInstance) error { return connectable(vmi) }

func connectable(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		phase := string(vmi.Status.Phase)
		switch {
		case vmi.DeletionTimestamp != nil:
			phase = "Terminating"
		case phase == "":
			phase = string(v1.Pending)
		}
		return apierrors.NewBadRequest(fmt.Sprintf(
			"Unable to connect to VirtualMachineInstance because phase is %s instead of %s", phase, v1.Running))
	}
	return nil
}

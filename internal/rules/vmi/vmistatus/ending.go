package vmistatus

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Reasons of a VMI's end that do not come from virt-launcher.
const (
	ReasonPodGone       = "LauncherPodGone"
	ReasonPodEnded      = "LauncherPodEnded"
	ReasonPodFailed     = "LauncherPodFailed"
	ReasonGuestLost     = "GuestLost"
	ReasonMigrationLost = "GuestLostInMigration"
)

// End is the end of a VMI.
type End struct {
	Failed          bool
	Reason, Message string // Reason only of a failed VMI
	WithoutPod      bool   // the launcher pod is gone
}

// EndOfPodGone returns the end by the loss of the launcher pod.
func EndOfPodGone() *End {
	return &End{Failed: true, Reason: ReasonPodGone, Message: "The launcher pod is gone, and the guest has ended with it.", WithoutPod: true}
}

// EndOfGuestLost returns the end of a guest whose end virt-launcher does not know.
func EndOfGuestLost() *End {
	return &End{Failed: true, Reason: ReasonGuestLost, Message: "The guest is gone, and its launcher does not know how it ended."}
}

// EndOfMigration returns the end of a guest that was lost during a migration.
func EndOfMigration(how string) *End {
	return &End{Failed: true, Reason: ReasonMigrationLost, Message: "The guest was lost while it was migrated: " + how + "."}
}

// EndOfQEMU returns the end of a VMI for QEMU's exit. by is the pod's disruption.
func EndOfQEMU(vmi *v1.VirtualMachineInstance, exit launch.Exit, by Disruption) *End {
	if unwanted(vmi, exit) {
		return endOfDisruption(vmi, exit.Reason, by)
	}
	if exit.Reason == launch.ReasonMigrated {
		// EndOfQEMU is not called if the guest is known to run at the target.
		return EndOfMigration("its QEMU had sent it to another node, where it does not run")
	}
	e := &End{Failed: exit.Reason.Failed(), Reason: string(exit.Reason), Message: EndMessage(exit.Reason)}
	if e.Failed && exit.Message != "" {
		e.Message += " QEMU said: " + exit.Message
	}
	return e
}

// EndOfPod returns the end of a VMI whose launcher pod has finished.
func EndOfPod(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) *End {
	if exit := ExitOf(pod); exit != nil {
		return EndOfQEMU(vmi, *exit, DisruptionOf(pod))
	}
	container := terminated(pod)
	if pod.Status.Phase == corev1.PodSucceeded {
		return &End{Message: EndMessage(launch.ReasonGuestShutdown)}
	}
	e := &End{Failed: true, Reason: pod.Status.Reason, Message: pod.Status.Message}
	if by := DisruptionOf(pod); by.Reason == ReasonNodeShutdown {
		e.Reason = by.Reason
	}
	if e.Reason == "" {
		e.Reason = ReasonPodFailed
	}
	switch {
	case e.Message != "":
	case container != nil:
		e.Message = fmt.Sprintf("The launcher's container ended with %s (exit code %d).", container.Reason, container.ExitCode)
	default:
		e.Message = "The launcher pod has failed: " + e.Reason + "."
	}
	return e
}

// ExitOf returns QEMU's exit from a launcher pod's termination message.
func ExitOf(pod *corev1.Pod) *launch.Exit {
	container := terminated(pod)
	if container == nil {
		return nil
	}
	var exit launch.Exit
	if err := json.Unmarshal([]byte(container.Message), &exit); err != nil || exit.Reason == "" {
		return nil
	}
	return &exit
}

// LauncherEnded reports whether virt-launcher's container has ended. Others of the pod may still run.
func LauncherEnded(pod *corev1.Pod) bool { return podstatus.Terminal(pod) || terminated(pod) != nil }

func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := podstatus.Container(pod, layout.ComputeContainer); s != nil {
		return s.State.Terminated
	}
	return nil
}

// EndMessage returns the sentence for a reason, in KubeVirt's words where it has some.
func EndMessage(reason launch.Reason) string {
	switch reason {
	case launch.ReasonGuestPanicked:
		return "The VirtualMachineInstance crashed: the guest's kernel panicked."
	case launch.ReasonWatchdog:
		return "The VirtualMachineInstance crashed: the guest's watchdog fired."
	case launch.ReasonCrashed:
		return "The VirtualMachineInstance crashed."
	case launch.ReasonInternalError:
		return "The VirtualMachineInstance crashed: an error inside QEMU or KVM stopped the guest, and it could not continue."
	case launch.ReasonStartFailed:
		return "QEMU could not be started."
	case launch.ReasonKilled:
		return "The guest did not shut down within its grace period and was ended by force."
	}
	return "The VirtualMachineInstance was shut down."
}

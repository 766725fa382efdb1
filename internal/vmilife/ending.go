package vmilife

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/condition"
	"drydock.dev/drydock/internal/launch"
	"drydock.dev/drydock/internal/launcherpod"
	"drydock.dev/drydock/internal/layout"
)

// ending is how a VMI came to its end, as its pod tells.
type ending struct {
	failed          bool
	reason, message string
}

// podGone is the end of a VMI whose launcher pod does not exist any more.
var podGone = ending{failed: true, reason: "LauncherPodGone", message: "the launcher pod is gone"}

func podFinished(pod *corev1.Pod) bool { return launcherpod.Finished(pod) }

// endOf reads how the guest ended from a finished pod: virt-launcher leaves it
// in its termination message; without one the pod's own end has to do.
func endOf(pod *corev1.Pod) ending {
	if exit := exitMessage(pod); exit != nil {
		return ending{failed: exit.Reason.Failed(), reason: string(exit.Reason), message: exit.Message}
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return ending{}
	}
	end := ending{failed: true, reason: pod.Status.Reason, message: pod.Status.Message}
	if end.reason == "" {
		end.reason = "LauncherPodFailed"
	}
	if t := computeTerminated(pod); t != nil && end.message == "" {
		end.message = fmt.Sprintf("the launcher's container ended with %s (exit code %d)", t.Reason, t.ExitCode)
	}
	return end
}

func exitMessage(pod *corev1.Pod) *launch.Exit {
	t := computeTerminated(pod)
	if t == nil {
		return nil
	}
	var exit launch.Exit
	if err := json.Unmarshal([]byte(t.Message), &exit); err != nil || exit.Reason == "" {
		return nil
	}
	return &exit
}

func computeTerminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := computeStatus(pod); s != nil {
		return s.State.Terminated
	}
	return nil
}

func computeStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == layout.ComputeContainer {
			return s
		}
	}
	return nil
}

// finish brings the VMI to its final phase.
func finish(vmi *v1.VirtualMachineInstance, o Observed, end ending) {
	phase, said := v1.Succeeded, "the guest has ended"
	if end.failed {
		phase, said = v1.Failed, end.message
		vmi.Status.Reason = end.reason
	}
	if said == "" {
		said = "the guest has failed: " + end.reason
	}
	setPhase(vmi, phase, o.Now)
	ready := notReady(said)
	if o.Pod == nil {
		ready.Reason = v1.PodNotExistsReason
	}
	condition.Set(&vmi.Status.Conditions, ready, o.Now)
}

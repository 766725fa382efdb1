package vmireport

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/runstate"
	conditions "drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// ReasonIOError is KubeVirt's reason for a guest that an I/O error has stopped.
const ReasonIOError = "IOerror"

func (r *Reporter) announce(c *Changes) {
	if c.from.Status.Phase != c.to.Phase {
		r.env.Log.Info("the VMI has reached another phase", "phase", c.to.Phase, "reason", c.to.Reason)
		switch c.to.Phase {
		case v1.Running:
			r.env.Cluster.Event(c.from, corev1.EventTypeNormal, v1.Started.String(), "VirtualMachineInstance started.")
		case v1.Succeeded, v1.Failed:
			r.announceEnd(c)
		}
	}
	if now := stallCondition(c.to); now != nil && stallCondition(c.from.Status) == nil {
		r.env.Cluster.Event(c.from, corev1.EventTypeWarning, ReasonIOError, now.Message)
	}
	before := map[string]v1.VolumeStatus{}
	for _, s := range c.from.Status.VolumeStatus {
		before[s.Name] = s
	}
	for _, s := range c.to.VolumeStatus {
		was := before[s.Name]
		if s.HotplugVolume == nil || was.Phase == s.Phase && was.Reason == s.Reason || s.Reason == "" {
			continue
		}
		kind := corev1.EventTypeNormal
		switch s.Reason {
		case nodehotplug.ReasonFailed, nodehotplug.ReasonPodGone, nodehotplug.ReasonRefused, nodehotplug.ReasonForced, nodehotplug.ReasonDetached:
			kind = corev1.EventTypeWarning
		}
		r.env.Cluster.Event(c.from, kind, s.Reason, s.Message)
	}
	if said := visibleFailure(c.to); said != "" && visibleFailure(c.from.Status) == "" {
		r.env.Cluster.Event(c.from, corev1.EventTypeWarning, v1.SyncFailed.String(), said)
	}
}

func (r *Reporter) announceEnd(c *Changes) {
	kind := corev1.EventTypeNormal
	if c.to.Phase == v1.Failed {
		kind = corev1.EventTypeWarning
	}
	message := "The VirtualMachineInstance was shut down."
	if ready := conditions.Find(c.to.Conditions, v1.VirtualMachineInstanceReady); ready != nil {
		message = ready.Message
	}
	if kind == corev1.EventTypeNormal && c.from.DeletionTimestamp != nil && message == vmistatus.EndMessage(launch.ReasonHostShutdown) {
		// The guest has ended as requested, and its VMI is being deleted.
		return
	}
	r.env.Cluster.Event(c.from, kind, v1.Stopped.String(), message)
	if reason := string(launch.ReasonGuestPanicked); c.to.Reason == reason {
		// Alerts watch KubeVirt's own event for a panic.
		r.env.Cluster.Event(c.from, kind, reason, message)
	}
}

func visibleFailure(status v1.VirtualMachineInstanceStatus) string {
	if c := conditions.Find(status.Conditions, v1.VirtualMachineInstanceSynchronized); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return ""
}

func stallCondition(status v1.VirtualMachineInstanceStatus) *v1.VirtualMachineInstanceCondition {
	ready := conditions.Find(status.Conditions, v1.VirtualMachineInstanceReady)
	if ready == nil || ready.Reason != runstate.ReasonPausedIOError {
		return nil
	}
	return ready
}

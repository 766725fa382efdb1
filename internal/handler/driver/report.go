package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/runstate"
	conditions "drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const (
	// reasonIOError is KubeVirt's event reason for a guest that an I/O error has stopped.
	reasonIOError = "IOerror"
	reasonLate    = "StartedWithoutVolumes"
)

type changes struct {
	from  *v1.VirtualMachineInstance
	to    v1.VirtualMachineInstanceStatus
	patch []byte // nil for no change
	err   error
}

func newChanges(from *v1.VirtualMachineInstance, facts vmihandler.Facts) *changes {
	c := &changes{from: from, to: vmihandler.Status(from, facts)}
	c.patch, c.err = vmihandler.Patch(from, c.to)
	return c
}

// After a conflict, report reads the VMI again, and the next step works from that.
func (d *Driver) report(ctx context.Context, c *changes) error {
	if c.err != nil {
		return c.err
	}
	d.announceUnanswered(c.from)
	now, err := d.env.Cluster.PatchVMI(ctx, c.from, c.patch)
	refused, before := err, d.unanswered
	d.unanswered = nil
	switch {
	case err == nil:
		d.announce(c)
	case apierrors.IsNotFound(err):
		now = nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The API server reports a failed JSON patch test as Invalid.
		d.unanswered = before
		now, err = d.env.Cluster.VMI(ctx, c.from.Namespace, c.from.Name)
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("reading VMI %s/%s: %w", c.from.Namespace, c.from.Name, err)
		}
		if now != nil && now.UID == c.from.UID && now.ResourceVersion == c.from.ResourceVersion {
			return fmt.Errorf("patching the status of VMI %s/%s: the API server refuses it although nobody else has changed the VMI: %w",
				c.from.Namespace, c.from.Name, refused)
		}
	default:
		d.unanswered = c
		return fmt.Errorf("patching the status of VMI %s/%s: %w", c.from.Namespace, c.from.Name, err)
	}
	d.presence.SetStored(now)
	return nil
}

// announceUnanswered announces an unanswered write once the VMI shows its effect. A VMI of the same version shows that
// it has none yet: then only it or the next report can have one. It never has if somebody else changed the VMI first.
func (d *Driver) announceUnanswered(now *v1.VirtualMachineInstance) {
	c := d.unanswered
	if c == nil || now == nil || now.ResourceVersion == c.from.ResourceVersion {
		return
	}
	d.unanswered = nil
	if left, err := vmihandler.Patch(now, c.to); err == nil && left == nil {
		d.announce(c)
	}
}

func (d *Driver) announce(c *changes) {
	if c.from.Status.Phase != c.to.Phase {
		d.log.Info("the VMI has reached another phase", "phase", c.to.Phase, "reason", c.to.Reason)
		switch c.to.Phase {
		case v1.Running:
			d.env.Cluster.Event(c.from, corev1.EventTypeNormal, v1.Started.String(), "VirtualMachineInstance started.")
		case v1.Succeeded, v1.Failed:
			d.announceEnd(c)
		}
	}
	if now := stallCondition(c.to); now != nil && stallCondition(c.from.Status) == nil {
		d.env.Cluster.Event(c.from, corev1.EventTypeWarning, reasonIOError, now.Message)
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
		d.env.Cluster.Event(c.from, kind, s.Reason, s.Message)
	}
	if said := visibleFailure(c.to); said != "" && visibleFailure(c.from.Status) == "" {
		d.env.Cluster.Event(c.from, corev1.EventTypeWarning, v1.SyncFailed.String(), said)
	}
}

func (d *Driver) announceEnd(c *changes) {
	kind := corev1.EventTypeNormal
	if c.to.Phase == v1.Failed {
		kind = corev1.EventTypeWarning
	}
	message := "The VirtualMachineInstance was shut down."
	if ready := conditions.Find(c.to.Conditions, v1.VirtualMachineInstanceReady); ready != nil {
		message = ready.Message
	}
	if kind == corev1.EventTypeNormal && c.from.DeletionTimestamp != nil && message == vmistatus.EndMessage(launch.ReasonHostShutdown) {
		// It ended as requested, and its VMI is deleted with it.
		return
	}
	d.env.Cluster.Event(c.from, kind, v1.Stopped.String(), message)
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

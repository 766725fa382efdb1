package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// changes is a status to be written.
type changes struct {
	from  *v1.VirtualMachineInstance
	to    v1.VirtualMachineInstanceStatus
	patch []byte // nil when nothing would change
	err   error
}

// changes works out the status from the facts. The caller holds d.mu.
func (d *Driver) changes(o vmi.Observed) *changes {
	facts := vmi.Facts{
		Node: d.env.Node,
		Exit: d.exit, Lost: vmi.Lost(o), PodReady: o.Pod != nil && o.Pod.Ready,
		PodInterrupted: o.Pod != nil && o.Pod.Interrupted,
		Vanished:       o.Pod != nil && o.Pod.Gone && !o.Pod.Remains && o.Link != vmi.LinkUp,
		Failure:        d.troubles.visible(), Now: o.Now,
	}
	if d.attached() && d.prepared != nil {
		facts.Guest = d.describe()
	}
	c := &changes{from: d.vmi, to: vmi.Status(d.vmi, facts)}
	c.patch, c.err = vmi.Patch(d.vmi, c.to)
	return c
}

// describe gathers what is known of the guest that runs.
func (d *Driver) describe() *vmi.Guest {
	g := &vmi.Guest{
		RunState:    d.guest.runState,
		Stalled:     d.guest.stall.Active(),
		FailedDisks: d.guest.failedDisks, PausedByUser: d.guest.pausedByUser,
		Halt:        d.halt(),
		MachineType: vmi.MachineType(d.vmi, d.env.Settings().MachineType),
		Volumes:     map[string]vmi.Volume{},

		SELinuxContext: d.prepared.selinux.Context(),
		Agent:          d.guest.told,
	}
	for _, i := range d.prepared.interfaces {
		g.Interfaces = append(g.Interfaces, vmi.Interface{
			Name: i.Name, MAC: i.MAC, PodInterface: i.PodInterface, IPs: i.IPs, Queues: i.Queues,
		})
	}
	for name, image := range d.prepared.images {
		size := max(image.VirtualSize, d.guest.growing.sizes[name])
		g.Volumes[name] = vmi.Volume{Size: size, Claim: d.prepared.claims[name]}
	}
	g.Plugged = d.plugged()
	return g
}

// report writes the status. When someone was faster, the VMI is read again and
// the status worked out anew.
func (d *Driver) report(ctx context.Context, c *changes) error {
	if c.err != nil {
		return c.err
	}
	now, err := d.env.Cluster.PatchVMI(ctx, c.from, c.patch)
	refused := err
	switch {
	case err == nil:
		d.announce(c)
	case apierrors.IsNotFound(err):
		now = nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The API server answers a failed test as Invalid.
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
		return fmt.Errorf("patching the status of VMI %s/%s: %w", c.from.Namespace, c.from.Name, err)
	}
	if now != nil && now.UID != d.uid {
		now = nil // another VMI of the same name
	}
	d.setStored(now)
	return nil
}

// announce makes the events of what has just been written.
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
	d.announceStall(c)
	d.announcePlugs(c)
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
	for _, condition := range c.to.Conditions {
		if condition.Type == v1.VirtualMachineInstanceReady {
			message = condition.Message
		}
	}
	if kind == corev1.EventTypeNormal && c.from.DeletionTimestamp != nil && message == vmistatus.EndMessage(launch.ReasonHostShutdown) {
		// It ended as it was asked to, and its VMI goes with it.
		return
	}
	d.env.Cluster.Event(c.from, kind, v1.Stopped.String(), message)
}

// visibleFailure is what the status says about a step that fails.
func visibleFailure(status v1.VirtualMachineInstanceStatus) string {
	for _, c := range status.Conditions {
		if c.Type == v1.VirtualMachineInstanceSynchronized && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

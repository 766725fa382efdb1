package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/plug"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplugpod"
)

func isHolder(pod *corev1.Pod) bool { return pod.Labels[v1.AppLabel] == layout.AttachmentApp }

// holderChanged takes over an attachment pod of this node, or forgets it. The
// caller holds s.mu.
func (s *Supervisor) holderChanged(pod *corev1.Pod, exists bool) {
	of := ownerOf(pod)
	if s.holders[of] == nil {
		s.holders[of] = map[types.UID]hotplug.Pod{}
	}
	s.holders[of][pod.UID] = hotplugpod.Observe(pod)
	if !exists {
		delete(s.holders[of], pod.UID)
	}
	if d, ok := s.driverOf(of); ok {
		d.mu.Lock()
		d.holders = slices.Collect(maps.Values(s.holders[of]))
		d.mu.Unlock()
		d.poke()
	}
	if len(s.holders[of]) == 0 {
		delete(s.holders, of)
	}
}

// newPlugs makes the Worker of a guest whose monitor is about to be connected.
func (d *Driver) newPlugs() *plug.Worker {
	return plug.NewWorker(plug.Env{
		Volume: d.openVolume, Capacity: d.claimCapacity, Go: func(f func()) { d.helpers.Go(f) }, Wake: d.poke, Now: d.env.Now,
	})
}

// claimCapacity is the size that one of the VMI's claims was given.
func (d *Driver) claimCapacity(ctx context.Context, claim string) (int64, error) {
	d.mu.Lock()
	instance := d.vmi
	d.mu.Unlock()
	if instance == nil {
		return 0, fmt.Errorf("the VMI of PVC %s is gone", claim)
	}
	found, err := d.env.Cluster.Claim(ctx, instance.Namespace, claim)
	if err != nil {
		return 0, fmt.Errorf("reading PVC %s/%s: %w", instance.Namespace, claim, err)
	}
	size, ok := found.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		size = found.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.Value(), nil
}

// lookAtPlugs reports whether there is something to be done about the hotplugged
// disks, or when there will be. A guest that is to end keeps what it has.
func (d *Driver) lookAtPlugs(ctx context.Context) (due bool, after time.Duration) {
	d.mu.Lock()
	g, instance, holders := d.guest, d.vmi, d.holders
	attached, halted := d.attached(), g != nil && g.halted
	d.mu.Unlock()
	if !attached || instance == nil || instance.DeletionTimestamp != nil || instance.IsFinal() {
		return false, 0
	}
	record, err := hotplug.ReadRecord(instance.Annotations)
	if err != nil {
		d.log.Error(err, "no volume is handed over", "vmi", instance.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	due, after, err = g.plugs.Look(ctx, g.monitor, plug.View{VMI: instance, Record: record, Holders: holders, Halted: halted})
	if err != nil {
		d.log.Info("a step failed", "step", vmi.Plug, "reason", err.Error())
	}
	return due, after
}

// plug does what is to be done about them. What fails is told in the volumes'
// own status and is tried again by itself.
func (d *Driver) plug(ctx context.Context, o vmi.Observed) {
	d.guest.plugs.Act(ctx, d.guest.monitor, d.input(o.VMI, d.prepared))
}

// plugged gathers what is known of them. The caller holds d.mu.
func (d *Driver) plugged() map[string]vmi.Plugged {
	list := map[string]vmi.Plugged{}
	for name, f := range d.guest.plugs.Facts(d.vmi) {
		list[name] = vmi.Plugged{
			Phase: f.Phase, Reason: f.Reason, Message: f.Message,
			PodName: f.PodName, PodUID: f.PodUID, Size: f.Size,
		}
	}
	return list
}

// tellPlugs passes on what QEMU reports about its disks.
func (g *guest) tellPlugs(e qmp.Event) {
	var data struct {
		Device string `json:"device"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return // none of the events that it waits for
	}
	g.plugs.HandleEvent(e.Name, data.Device)
}

// announcePlugs makes the events of volumes that have come or gone.
func (d *Driver) announcePlugs(c *changes) {
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
		case plug.ReasonFailed, plug.ReasonHolder, plug.ReasonRefused, plug.ReasonForced, plug.ReasonHollow:
			kind = corev1.EventTypeWarning
		}
		d.env.Cluster.Event(c.from, kind, s.Reason, s.Message)
	}
}

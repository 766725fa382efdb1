package driver

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/qemu/runstate"
	conditions "drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/machine"
)

// reasonIOError is KubeVirt's for the event of a guest that an I/O error stops.
const reasonIOError = "IOerror"

func (g *guest) queryStatus(ctx context.Context) (string, error) {
	var status struct {
		Status string `json:"status"`
	}
	err := g.monitor.Execute(ctx, "query-status", nil, &status)
	return status.Status, err
}

// askRunState asks QEMU for the guest's run state, and, if an I/O error has
// stopped it, for the disks that it was on.
func (d *Driver) askRunState(ctx context.Context, g *guest) error {
	state, err := g.queryStatus(ctx)
	if err != nil {
		return err
	}
	var failed []vmi.FailedDisk
	if state == runstate.IOError {
		failed, err = g.queryFailedDisks(ctx, d.disks())
		if err != nil {
			return err
		}
	}
	paused, halted, err := g.askMarkers(ctx, state)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.runState != state {
		d.log.Info("the guest's run state is another", "runState", state, "before", g.runState)
	}
	g.runState = state
	g.stall = g.stall.Next(state, d.env.Now())
	g.pausedByUser, g.halted = paused, halted
	if state == runstate.IOError || !g.stall.Active() {
		// A guest that has just been told to continue may stop again at once: until
		// it has run for a while, what is known of its disks stands.
		g.failedDisks = failed
	}
	return nil
}

// disks are those of the VMI's specification.
func (d *Driver) disks() []v1.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.vmi == nil {
		return nil
	}
	return d.vmi.Spec.Domain.Devices.Disks
}

// blockDevice is what QEMU says of a disk.
type blockDevice struct {
	Device string `json:"qdev"`
	// IOStatus is ok, failed or nospace. It is ok again when the guest continues.
	IOStatus string `json:"io-status"`
}

func (g *guest) queryFailedDisks(ctx context.Context, disks []v1.Disk) ([]vmi.FailedDisk, error) {
	var devices []blockDevice
	if err := g.monitor.Execute(ctx, "query-block", nil, &devices); err != nil {
		return nil, err
	}
	return failedDisks(devices, disks), nil
}

// failedDisks are the VMI's disks that have an error, in the specification's
// order, each once: a QEMU in a guest's hands may answer anything.
func failedDisks(devices []blockDevice, disks []v1.Disk) []vmi.FailedDisk {
	errs := map[string]string{}
	for _, device := range devices {
		if device.IOStatus != "failed" && device.IOStatus != "nospace" {
			continue
		}
		// The device's path ends in its id, or, for virtio, in a part of it.
		for part := range strings.SplitSeq(device.Device, "/") {
			errs[part] = device.IOStatus
		}
	}
	var failed []vmi.FailedDisk
	for i := range disks {
		if status, ok := errs[machine.DiskID(disks[i].Name)]; ok {
			failed = append(failed, vmi.FailedDisk{Volume: disks[i].Name, Full: status == "nospace"})
		}
	}
	return failed
}

// hasMarker reports whether QEMU has one of machine's markers.
func (g *guest) hasMarker(ctx context.Context, marker string) (bool, error) {
	var objects []struct {
		Name string `json:"name"`
	}
	if err := g.monitor.Execute(ctx, "qom-list", map[string]any{"path": "/objects"}, &objects); err != nil {
		return false, err
	}
	for _, o := range objects {
		if o.Name == marker {
			return true, nil
		}
	}
	return false, nil
}

// setPauseMarker makes or removes the marker. The caller holds g.power.
func (g *guest) setPauseMarker(ctx context.Context, want bool) error {
	have, err := g.hasMarker(ctx, machine.PauseMarker)
	if err != nil || have == want {
		return err
	}
	if want {
		return g.monitor.Execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": machine.PauseMarker}, nil)
	}
	return g.removeMarker(ctx, machine.PauseMarker)
}

// passingPause is how often QEMU is asked for a run state that it may leave
// without an event, as a migration's.
const passingPause = time.Second

func passing(state string) bool {
	outlook := runstate.Of(state).Outlook
	return outlook == runstate.Passes || outlook == runstate.Unknown
}

// observeRunState adds what follows from the guest's run state. The caller holds
// d.mu, and the guest is attached.
func (d *Driver) observeRunState(o *vmi.Observed) {
	g := d.guest
	g.stall = g.stall.Next(g.runState, o.Now)
	if !g.stall.Active() {
		g.failedDisks = nil
	}
	due, after := g.stall.Resume(g.pausedByUser, o.Now)
	if passing(g.runState) {
		after = sooner(after, passingPause)
	}
	if g.halted && d.vmi != nil {
		halt := vmi.DecideHalt(d.vmi, g.plugs.Plugged(d.vmi), o.Now)
		o.Halted, o.Begin, after = true, halt.Begin, sooner(after, halt.After)
	}
	o.RunState, o.Resume, o.PlugAfter = g.runState, due, sooner(o.PlugAfter, after)
}

// resume tells a guest that an I/O error has stopped to continue. What it does is
// up to its disks.
func (d *Driver) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	g := d.guest
	d.mu.Lock()
	g.stall = g.stall.Told(d.env.Now())
	attempt := g.stall.Attempts()
	g.stale = true
	d.mu.Unlock()
	g.power.Lock()
	defer g.power.Unlock()
	state, err := g.queryStatus(ctx)
	if err != nil || state != runstate.IOError {
		return err
	}
	if paused, err := g.hasMarker(ctx, machine.PauseMarker); err != nil || paused {
		return err
	}
	d.log.V(1).Info("telling a guest to continue that an I/O error has stopped", "attempt", attempt)
	if err := g.monitor.Execute(ctx, "cont", nil, nil); err != nil {
		return fmt.Errorf("resuming the guest after an I/O error: %w", err)
	}
	return nil
}

// announceStall makes the event of a guest that an I/O error has stopped: one for
// each time that the VMI begins to say so.
func (d *Driver) announceStall(c *changes) {
	if stalled(c.from.Status) == nil {
		if now := stalled(c.to); now != nil {
			d.env.Cluster.Event(c.from, corev1.EventTypeWarning, reasonIOError, now.Message)
		}
	}
}

// stalled is the condition that says that an I/O error has stopped the guest, nil
// when none does.
func stalled(status v1.VirtualMachineInstanceStatus) *v1.VirtualMachineInstanceCondition {
	ready := conditions.Find(status.Conditions, v1.VirtualMachineInstanceReady)
	if ready == nil || ready.Reason != runstate.ReasonPausedIOError {
		return nil
	}
	return ready
}

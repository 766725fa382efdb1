package guest

import (
	"context"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
)

func (g *Guest) queryStatus(ctx context.Context) (string, error) {
	var status struct {
		Status string `json:"status"`
	}
	err := g.monitor.Execute(ctx, "query-status", nil, &status)
	return status.Status, err
}

// ask asks QEMU for the guest's run state and for what goes with it: markers, and, if an
// I/O error has stopped the guest, the disks that it was on.
func (g *Guest) ask(ctx context.Context, disks []v1.Disk) error {
	state, err := g.queryStatus(ctx)
	if err != nil {
		return err
	}
	a := answers{runState: state}
	if state == runstate.IOError {
		if a.failed, err = g.queryFailedDisks(ctx, disks); err != nil {
			return err
		}
	}
	g.mu.Lock()
	asks := g.known.asksMarkers(state)
	g.mu.Unlock()
	if asks {
		if a.waits, a.paused, err = g.markers(ctx, state); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known.runState != state {
		g.env.Log.Info("the guest's run state is another", "runState", state, "before", g.known.runState)
	}
	g.known = g.known.with(a, g.env.Now())
	return nil
}

// observePower asks QEMU for what a verb is decided on.
func (g *Guest) observePower(ctx context.Context) (observation, error) {
	name, err := g.queryStatus(ctx)
	if err != nil {
		return observation{}, err
	}
	waits, paused, err := g.markers(ctx, name)
	return observation{state: runstate.Of(name), halted: halts(name, waits), paused: paused}, err
}

// markers asks for machine's markers, in a run state that QEMU has just named. The one of a
// guest that has run is removed, before a verb can bring the guest back to the state in which
// the marker means something.
func (g *Guest) markers(ctx context.Context, state string) (waits, paused bool, err error) {
	objects, err := g.objects(ctx)
	if err != nil {
		return false, false, err
	}
	waits, paused = objects[machine.WaitMarker], objects[machine.PauseMarker]
	if outlived(state, waits) {
		return false, paused, g.removeMarker(ctx, machine.WaitMarker)
	}
	return waits, paused, nil
}

// blockDevice is what QEMU says of a disk.
type blockDevice struct {
	Device   string `json:"qdev"`
	IOStatus string `json:"io-status"`
}

func (g *Guest) queryFailedDisks(ctx context.Context, disks []v1.Disk) ([]guestlifecycle.FailedDisk, error) {
	var devices []blockDevice
	if err := g.monitor.Execute(ctx, "query-block", nil, &devices); err != nil {
		return nil, err
	}
	return failedDisks(devices, disks), nil
}

// failedDisks are the VMI's disks that have an error, in the specification's
// order, each once: a QEMU in a guest's hands may answer anything.
func failedDisks(devices []blockDevice, disks []v1.Disk) []guestlifecycle.FailedDisk {
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
	var failed []guestlifecycle.FailedDisk
	for i := range disks {
		if status, ok := errs[machine.DiskID(disks[i].Name)]; ok {
			failed = append(failed, guestlifecycle.FailedDisk{Volume: disks[i].Name, Full: status == "nospace"})
		}
	}
	return failed
}

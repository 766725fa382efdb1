package guest

import (
	"context"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type runStatus struct {
	Status string `json:"status"`
}

// QueryStatus queries QEMU's own run state.
func QueryStatus(ctx context.Context, monitor *qmp.Client) (string, error) {
	var status runStatus
	err := monitor.Execute(ctx, "query-status", nil, &status)
	return status.Status, err
}

func (g *Guest) updateState(ctx context.Context, disks []v1.Disk) error {
	g.mu.Lock()
	known := g.known
	g.mu.Unlock()
	a, err := g.query(ctx, known)
	if err != nil {
		return err
	}
	if a.runState == runstate.IOError {
		var devices []blockDevice
		if err := g.monitor.Execute(ctx, "query-block", nil, &devices); err != nil {
			return err
		}
		a.failed = failedDisks(devices, disks)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known.runState != a.runState {
		g.env.Log.Info("the guest's run state is another", "runState", a.runState, "before", g.known.runState)
	}
	if was := g.known.migration; was.Status != a.migration.Status {
		g.env.Log.Info("the guest's migration is at another point", "status", a.migration.Status, "before", was.Status)
	}
	g.known = g.known.with(a, g.env.Now())
	return nil
}

// query queries everything but the disks, or only the run state if the rest does not matter.
func (g *Guest) query(ctx context.Context, known knownState) (answers, error) {
	if !known.markersMatter(runstate.Running) {
		name, err := QueryStatus(ctx, g.monitor)
		if err != nil || !known.markersMatter(name) {
			return answers{runState: name, migration: known.migration}, err
		}
	}
	return g.queryAll(ctx)
}

// queryAll sends all queries at once: each round trip prolongs a migration's downtime. The jobs follow the migration, so
// that copies that ended meanwhile count as ended. The run state comes last: a guest that has just been sent must not
// count as kept. A marker that is left over is removed before a verb brings back the state in which it counts.
func (g *Guest) queryAll(ctx context.Context) (answers, error) {
	var (
		list   []object
		info   migrationInfo
		jobs   []jobInfo
		status runStatus
	)
	if err := g.monitor.ExecuteAll(ctx, listObjects(&list), qmp.Command{Name: "query-migrate", Result: &info}, listJobs(&jobs),
		qmp.Command{Name: "query-status", Result: &status}); err != nil {
		return answers{}, err
	}
	objects := names(list)
	a := answers{
		migration: migrationOf(info, status.Status, objects), jobs: copiesOf(jobs),
		waits: objects[machine.WaitMarker], paused: objects[machine.PauseMarker], held: objects[launch.HeldMarker],
	}
	a.runState = guestRunState(a.migration)
	if objects[launch.StoppedMarker] && runstate.Of(a.runState).Reason == runstate.ReasonPausedByUser {
		a.runState = runstate.Held
	}
	if a.migration.pausedMarkerLeftOver() {
		a.migration.Paused = false
		if err := g.Markers().Remove(ctx, machine.PausedMarker(a.migration.Begun)); err != nil {
			return answers{}, err
		}
	}
	if !waitMarkerLeftOver(status.Status, a.waits) {
		return a, nil
	}
	a.waits = false
	return a, g.Markers().Remove(ctx, machine.WaitMarker)
}

// Observation is the state for the decision on a command.
type Observation struct {
	power.Guest
	// Migration determines State, too.
	Migration Migration
	KVM       bool
}

func (a *answers) observation() Observation {
	return Observation{Migration: a.migration, Guest: power.Guest{
		State: runstate.Of(a.runState), Halted: isHalted(a.runState, a.waits), Paused: a.paused, Held: a.held, Migrating: a.migration.UnderWay(),
	}}
}

type blockDevice struct {
	Device   string `json:"qdev"`
	IOStatus string `json:"io-status"`
}

// failedDisks returns the VMI's disks with an error, each once: a hostile QEMU may answer anything.
func failedDisks(devices []blockDevice, disks []v1.Disk) []vmihandler.FailedDisk {
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
	var failed []vmihandler.FailedDisk
	for i := range disks {
		if status, ok := errs[machine.DiskID(disks[i].Name)]; ok {
			failed = append(failed, vmihandler.FailedDisk{Volume: disks[i].Name, Full: status == "nospace"})
		}
	}
	return failed
}

package migration

import (
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// How long the source's virt-handler may be silent about a begun migration (decision 322).
const (
	// silenceLimit counts from the last report, which comes every few seconds.
	silenceLimit = 2 * time.Minute
	// unheardLimit counts from the beginning: an older release may report no progress.
	unheardLimit = time.Hour
)

// silentAt returns when the source's silence has lasted too long. It compares no two clocks: the last report's time is a
// difference of two times of virt-handler's clock.
func (d *decision) silentAt() time.Time {
	since := d.o.Now
	for _, t := range d.p.Migration.Status.PhaseTransitionTimestamps {
		if t.Phase == v1.MigrationRunning {
			since = t.PhaseTransitionTimestamp.Time
		}
	}
	told := condition.Find(d.o.VMI.Status.Conditions, vmistatus.MigrationProgress)
	abort := condition.Find(d.p.Migration.Status.Conditions, v1.VirtualMachineInstanceMigrationAbortRequested)
	switch {
	case told == nil && abort != nil && d.targetIsOut():
		// Any release would have answered at once.
		return abort.LastTransitionTime.Add(silenceLimit)
	case told == nil:
		return since.Add(unheardLimit)
	}
	return since.Add(max(0, told.LastProbeTime.Sub(d.state().StartTimestamp.Time)) + silenceLimit)
}

func (d *decision) silence() string {
	ms := d.state()
	if ms.StartTimestamp == nil || d.o.Now.Before(d.silentAt()) {
		return ""
	}
	return fmt.Sprintf("virt-handler on node %s, which sends the guest, has not been heard of for at least %v; see its log", ms.SourceNode, silenceLimit)
}

// No event reports silence.
func (d *decision) awaitAnswer() {
	if d.state().StartTimestamp != nil && d.silence() == "" {
		d.requeueAt(d.silentAt())
	}
}

// targetIsOut reports whether the target of an unfinished migration has ended without running the guest, for good
// (package switchover).
func (d *decision) targetIsOut() bool {
	return !switchover.RecordOf(d.o.VMI, d.o.Migration.UID).TargetNamed
}

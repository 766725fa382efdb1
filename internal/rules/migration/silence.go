package migration

import (
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/switchover"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// How long virt-handler at the source may say nothing of a migration that it has begun (decision 322).
const (
	// silenceLimit counts from when it has told last how far the migration is, which it does every few seconds.
	silenceLimit = 2 * time.Minute
	// unheardLimit counts from the beginning of a migration of which it has told nothing: it may be of a
	// release that never does.
	unheardLimit = time.Hour
)

// silentAt is when virt-handler at the source has been silent for too long, if it goes on so. Each clock is
// compared with itself alone: until when it was heard follows from two times of its own.
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
		// Whatever its release, it would have answered at once.
		return abort.LastTransitionTime.Add(silenceLimit)
	case told == nil:
		return since.Add(unheardLimit)
	}
	return since.Add(max(0, told.LastProbeTime.Sub(d.state().StartTimestamp.Time)) + silenceLimit)
}

// silence says that virt-handler at the source has been silent for too long, "" if it has not.
func (d *decision) silence() string {
	ms := d.state()
	if ms.StartTimestamp == nil || d.o.Now.Before(d.silentAt()) {
		return ""
	}
	return fmt.Sprintf("virt-handler on node %s, which sends the guest, has not been heard of for at least %v; see its log", ms.SourceNode, silenceLimit)
}

// awaitAnswer looks again when the source has been silent for too long. Nothing else tells of that.
func (d *decision) awaitAnswer() {
	if d.state().StartTimestamp != nil && d.silence() == "" {
		d.lookAgain(d.silentAt())
	}
}

// targetIsOut reports whether the VMI says of a migration that has not ended that its target has ended
// without having run the guest, and never will (package switchover).
func (d *decision) targetIsOut() bool {
	return !switchover.RecordOf(d.o.VMI, d.o.Migration.UID).TargetNamed
}

// abandon ends a migration whose guest is the source's for good, while nobody is there to say so. What the
// VMI says of it is left to the source's virt-handler, which is the only one to know whether
// the guest stands still: no other migration begins before it is back.
func (d *decision) abandon() {
	ms := d.state()
	d.fail("%s (the guest has not run on node %s, and stays on node %s)", d.wholeReason(d.silence()), ms.TargetNode, ms.SourceNode)
}

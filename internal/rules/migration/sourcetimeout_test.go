package migration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// sending puts the migration into phase Running since noon.
func sending(o *Observed) {
	in(v1.MigrationRunning)(o)
	o.Migration.Status.PhaseTransitionTimestamps = append(o.Migration.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: v1.MigrationRunning, PhaseTransitionTimestamp: metav1.NewTime(noon)})
}

// heard adds the source's report of its progress, this long after its start by its own clock.
func heard(after time.Duration) edit {
	return func(o *Observed) {
		start := o.VMI.Status.MigrationState.StartTimestamp.Time
		o.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: vmistatus.MigrationProgress, Status: "True", LastProbeTime: metav1.NewTime(start.Add(after))}}
	}
}

// byAnotherClock sets the source's clock back by an hour.
func byAnotherClock(ms *state) { ms.StartTimestamp = new(metav1.NewTime(noon.Add(-time.Hour))) }

// out marks the target pod as one that never ran the guest.
func out(o *Observed) { delete(o.VMI.Status.ActivePods, targetUID) }

func TestASourceThatSaysNothing(t *testing.T) {
	const (
		silent   = "virt-handler on node node1, which sends the guest, has not been heard of for at least 2m0s; see its log"
		asks     = "migrationAbortRequested=True AbortRequested: "
		stays    = " (the guest has not run on node node2, and stays on node node1)"
		failedAs = "state of m node1 -> node2/virt-launcher-vm-tgt failed completed"
	)
	there, dead := target("node2", runs), target("node2", ended)
	aborted := says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", silent)
	atNoon := func(o *Observed) { o.Migration.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon) }
	check(t, map[string]situation{
		"it has told nothing yet":             {observed(sending, told(addressed, begun), there, later(time.Minute)), lines("look again after 59m0s")},
		"it has told nothing for an hour":     {observed(sending, told(addressed, begun), there, later(time.Hour)), lines("needs the VMI")},
		"it has told nothing at all":          {observed(sending, told(addressed, begun), there, later(time.Hour), vmiAsked), lines("abort", asks+silent)},
		"it has told something":               {observed(sending, told(addressed, begun), there, heard(10*time.Second), later(time.Minute)), lines("look again after 1m10s")},
		"it tells for hours":                  {observed(sending, told(addressed, begun), there, heard(5*time.Hour), later(5*time.Hour)), lines("look again after 2m0s")},
		"it is about to count as silent":      {observed(sending, told(addressed, begun), there, heard(10*time.Second), later(2*time.Minute+10*time.Second-1)), lines("look again after 1ms")},
		"it is silent, says the cache":        {observed(sending, told(addressed, begun), there, heard(10*time.Second), later(2*time.Minute+10*time.Second)), lines("needs the VMI")},
		"it is silent":                        {observed(sending, told(addressed, begun), there, heard(10*time.Second), later(2*time.Minute+10*time.Second), vmiAsked), lines("abort", asks+silent)},
		"its clock is behind":                 {observed(sending, told(addressed, begun, byAnotherClock), there, heard(10*time.Second), later(time.Minute)), lines("look again after 1m10s")},
		"its clock was set back":              {observed(sending, told(addressed, begun), there, heard(-time.Hour), later(time.Minute)), lines("look again after 1m0s")},
		"it is silent before it has begun":    {observed(sending, told(addressed), there, vmiAsked, later(time.Hour)), lines("failure: virt-handler on node node1 has not begun to send the guest within 5m0s")},
		"it is silent, and was asked to stop": {observed(sending, told(addressed, begun, aborting), there, heard(0), later(time.Hour), vmiAsked, aborted), nil},
		"it is silent, and the target has ended, which the VMI does not say yet": {observed(sending, told(addressed, begun, aborting), dead, heard(0), later(time.Hour), vmiAsked, aborted), nil},
		"it is silent, and the target never runs": {observed(sending, told(addressed, begun, aborting), dead, out, heard(0), later(time.Hour), vmiAsked, aborted),
			lines("enter Failed", failedAs+" abort  at 13:00:00: "+silent+stays, "delete the target pod", "drop the finalizer")},
		"it is silent, and the target never runs, says the cache": {observed(sending, told(addressed, begun, aborting), dead, out, heard(0), later(time.Hour), aborted), lines("needs the VMI")},
		"it is silent, and the target is gone": {observed(sending, told(addressed, begun), out, heard(0), later(time.Hour), asked),
			lines("enter Failed", failedAs+" at 13:00:00: "+silent+stays, "drop the finalizer")},
		"it is silent, and the target may be gone": {observed(sending, told(addressed, begun), out, heard(0), later(time.Hour), vmiAsked), lines("needs the target pod")},
		"it is silent, it was canceled, and the target never runs": {observed(sending, cancel, told(addressed, begun, aborting), dead, out, heard(0), later(time.Hour), vmiAsked,
			says(v1.VirtualMachineInstanceMigrationAbortRequested, "AbortRequested", cancelText)),
			lines("enter Failed", failedAs+" abort Succeeded at 13:00:00: "+cancelText+"; "+silent+stays, "delete the target pod", "drop the finalizer")},
		"it is not silent, and the target never runs": {observed(sending, told(addressed, begun, aborting), dead, out, heard(0), later(time.Minute), aborted), lines("look again after 1m0s")},
		"it is silent, and the guest has arrived": {observed(sending, told(addressed, begun, completed), there, onTarget, heard(0), later(time.Hour)),
			lines("enter Succeeded", "state of m node1 -> node2/virt-launcher-vm-tgt completed", "drop the finalizer")},
		"it has told nothing, and is asked to stop":      {observed(sending, told(addressed, begun, aborting), there, aborted, atNoon, later(time.Minute)), lines("look again after 59m0s")},
		"it has told nothing, and the target never runs": {observed(sending, told(addressed, begun, aborting), dead, out, aborted, atNoon, later(time.Minute)), lines("look again after 1m0s")},
		"it has told nothing, and the target has not run": {observed(sending, told(addressed, begun, aborting), dead, out, later(time.Minute)),
			lines(asks+"the target pod virt-launcher-vm-tgt is gone", "look again after 2m0s")},
		"it does not answer, and the target never runs": {observed(sending, told(addressed, begun, aborting), dead, out, aborted, atNoon, later(2*time.Minute), vmiAsked),
			lines("enter Failed", failedAs+" abort  at 12:02:00: "+silent+stays, "delete the target pod", "drop the finalizer")},
		"it was silent, and has failed since": {observed(in(v1.MigrationFailed), told(addressed, begun, aborting, failed), dead, out, heard(0), later(time.Hour), noFinalizer), nil},
		"it has ended, and the source is not back": {observed(in(v1.MigrationFailed), told(addressed, begun, aborting), dead, out, heard(0), later(time.Hour)),
			lines("delete the target pod", "drop the finalizer")},
	})
}

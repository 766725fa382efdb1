package guestlifecycle

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// killAfter is how long virt-launcher may take to end QEMU beyond the grace
// period that it was given.
const killAfter = 15 * time.Second

// mustEnd reports whether a guest that runs has to end: its VMI is to go, or is
// over as far as everyone else knows, or its pod is gone, or the guest cannot
// continue.
func mustEnd(o Observed) bool {
	broken, _ := Broken(o)
	return broken || o.VMI.DeletionTimestamp != nil || o.VMI.IsFinal() || podGone(o)
}

// stop tells virt-launcher to end QEMU, once, and again when the grace period
// became shorter; and by force when that is of no use.
func stop(o Observed) (Step, time.Duration) {
	grace := Grace(o)
	if o.Stopping == nil || grace < *o.Stopping {
		return Stop, 0
	}
	left := o.StoppingSince.Add(time.Duration(*o.Stopping)*time.Second + killAfter).Sub(o.Now)
	switch {
	case left <= 0:
		return Kill, killAfter
	case o.Deserted:
		return Wait, left
	case !o.Attached && !o.VMI.IsFinal() && !podGone(o):
		// The status still needs its facts, and the monitor must be read.
		return Attach, left
	case o.Migrate:
		// It has to be given up, or has been handed over.
		return Migrate, left
	case o.Resume:
		// A guest that is stopped cannot follow the power button.
		return Resume, left
	}
	return report(o), left
}

// Grace is how long, in seconds, the guest has to follow the power button now: no
// time at all if it cannot.
func Grace(o Observed) int64 {
	if ends, _ := Broken(o); ends || o.Halted {
		return 0
	}
	return GracePeriod(o.VMI)
}

// Broken reports whether the guest cannot continue and is to be ended for that,
// and what its end is to count as; empty if what virt-launcher reported counts.
func Broken(o Observed) (ends bool, failure launch.Reason) {
	if !o.Attached {
		return false, ""
	}
	state := runstate.Of(o.RunState)
	if state.Action == runstate.End && state.Failure == "" {
		return true, launch.ReasonGuestShutdown
	}
	return state.Action == runstate.End, state.Failure
}

// defaultGrace is KubeVirt's for a VMI that names none.
const defaultGrace = 30

// GracePeriod is how long, in seconds, the guest has to follow the power
// button. A VMI that is over has had its time.
func GracePeriod(vmi *v1.VirtualMachineInstance) int64 {
	switch {
	case vmi.IsFinal():
		return 0
	case vmi.Spec.TerminationGracePeriodSeconds != nil:
		return max(0, *vmi.Spec.TerminationGracePeriodSeconds)
	}
	return defaultGrace
}

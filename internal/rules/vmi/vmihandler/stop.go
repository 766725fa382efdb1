package vmihandler

import (
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// killAfter is virt-launcher's time to end QEMU after the grace period.
const killAfter = 15 * time.Second

func mustEnd(o Observed) bool {
	broken, _ := Broken(o)
	return broken || o.VMI.DeletionTimestamp != nil || o.VMI.IsFinal() || podGone(o)
}

// stop tells virt-launcher once to end QEMU, again when the grace period was shortened, and finally kills it.
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
		// The migration must be canceled, or has succeeded.
		return Migrate, left
	case o.Resume:
		// A stopped guest can't react to the power button.
		return Resume, left
	}
	return report(o), left
}

// Grace returns the guest's seconds after the power button, 0 if it cannot react.
func Grace(o Observed) int64 {
	if ends, _ := Broken(o); ends || o.Halted {
		return 0
	}
	return GracePeriod(o.VMI)
}

// Broken reports whether the guest must be ended, and the reason of its end; "" keeps virt-launcher's.
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

// defaultGrace is KubeVirt's default.
const defaultGrace = 30

// GracePeriod returns the VMI's grace period in seconds. For an ended VMI it is over.
func GracePeriod(vmi *v1.VirtualMachineInstance) int64 {
	switch {
	case vmi.IsFinal():
		return 0
	case vmi.Spec.TerminationGracePeriodSeconds != nil:
		return max(0, *vmi.Spec.TerminationGracePeriodSeconds)
	}
	return defaultGrace
}

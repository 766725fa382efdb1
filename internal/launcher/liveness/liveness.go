// Package liveness decides when the kubelet's probes of a guest count: only while the guest is here and may run.
// Otherwise the kubelet would end a pod whose guest has not arrived, has just been sent, or was stopped by Drydock.
//
// It is pure: it must not query QEMU. Package runstate owns the meaning of QEMU's run states.
//
//	            the guest began: the probes start
//	                       v
//	QEMU starts ──> runs here ──> is sent ──> runs elsewhere
//	 or waits        │     ^
//	 for a guest     v     │
//	              held, stopped
//	no probe  │  only here   │ a probe that fails counts nothing
package liveness

import (
	"fmt"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// Facts are virt-launcher's view of its guest.
type Facts struct {
	// Started means that QEMU's monitor has answered, Stopping that the guest is being ended.
	Started, Stopping bool
	// Arriving means that QEMU waits for a guest that has not run here, Left that the guest was sent elsewhere.
	Arriving, Left bool
	// Ran means that the CPUs were started after QEMU's monitor had answered.
	Ran bool
	// Held means that a snapshot's hold lasts, begins or ends.
	Held      bool
	Migration migrationstatus.Status
	// RunState is QEMU's, "" if unknown.
	RunState string
}

// Excuse returns why a liveness probe does not count, "" if it counts, as it does if QEMU does not answer.
func Excuse(f Facts) string {
	switch {
	case !f.Started:
		return "its QEMU has not started"
	case f.Stopping:
		return "it is being ended"
	case f.Arriving:
		return "it has not arrived"
	case f.Left:
		return "it was sent to another node"
	case f.Migration.UnderWay():
		return "it is being migrated"
	case f.Held:
		return "it is held still for a snapshot"
	case f.RunState == "":
		return ""
	}
	switch runstate.Of(f.RunState).Outlook {
	case runstate.Waits, runstate.Passes, runstate.Moved:
		return fmt.Sprintf("it is stopped (QEMU's state %q)", f.RunState)
	}
	return ""
}

// Began reports whether the guest has run here, and may report so of a guest that was stopped since.
func Began(f Facts) bool {
	switch {
	case !f.Started, f.Arriving:
		return false
	case f.Left, f.Ran:
		return true
	}
	switch f.RunState {
	case "", runstate.Prelaunch, runstate.InMigrate:
		return false
	}
	return true
}

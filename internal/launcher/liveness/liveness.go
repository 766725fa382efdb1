// Package liveness decides when the kubelet's probes of a guest count: only while the guest is here and may run. The
// kubelet must not end a pod whose guest has not arrived, has just been sent, or was stopped by Drydock.
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
	Started   bool // QEMU's monitor has answered
	Stopping  bool // the guest is being ended
	Arriving  bool // QEMU waits for a guest that has not run here
	Left      bool // the guest was sent elsewhere
	Ran       bool // the CPUs were started after QEMU's monitor had answered
	Held      bool // a snapshot's hold lasts, begins or ends
	Migration migrationstatus.Status
	RunState  string // QEMU's, "" if unknown
}

// Excuse returns why a liveness probe does not count, "" if it counts. It counts if QEMU does not answer.
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

// Began reports whether the guest has run here. It may have been stopped since.
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

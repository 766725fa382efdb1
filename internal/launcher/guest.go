package launcher

import (
	"encoding/json"
	"fmt"
	"syscall"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// guest is what has been learned about the guest's end so far. It is pure: the
// driver feeds it, and exit draws the conclusion.
type guest struct {
	// started: QEMU's monitor has answered.
	started bool
	// stopping: the launcher was told to end it; graceless: at once; forced:
	// the launcher has ended it by force.
	stopping, graceless, forced bool
	// failure: virt-handler ends the guest because it has failed in this way.
	failure launch.Reason

	// What QEMU's events have said.
	powerButton bool
	panicked    bool
	watchdog    bool
	shutdown    string
	// poweredOff means that the guest has powered itself off, whatever ends its QEMU then.
	poweredOff bool
	// migration is the status of the last migration; ran means that the CPUs were started
	// after QEMU's monitor had answered.
	migration migrationstatus.Status
	ran       bool

	// incoming: QEMU waits for a guest that a migration brings.
	incoming bool
}

// exitStatus is how the process ended.
type exitStatus struct {
	wait   syscall.WaitStatus
	stderr string
	// deaf means that the monitor ended before QEMU did, or that not all was read of it.
	deaf bool
}

// Values of the member reason of QEMU's event SHUTDOWN.
const (
	shutdownGuest      = "guest-shutdown"
	shutdownGuestReset = "guest-reset"
	shutdownPanic      = "guest-panic"
	shutdownHostError  = "host-error"
)

// fail notes why virt-handler ends the guest: that it has failed, of which the first reason counts, or has powered
// itself off. Another reason does not count.
func (g *guest) fail(reason launch.Reason) {
	switch {
	case reason == launch.ReasonGuestShutdown:
		g.poweredOff = g.poweredOff || !g.powerButton
	case g.failure == "" && reason.Failed():
		g.failure = reason
	}
}

// event notes what one of QEMU's events says about the end.
func (g *guest) event(name string, data []byte) {
	var d struct {
		Reason string `json:"reason"`
		Action string `json:"action"`
		Status string `json:"status"`
	}
	// An event without data has nothing to be read.
	_ = json.Unmarshal(data, &d)
	switch name {
	case "POWERDOWN":
		g.powerButton = true
	case "RESET":
		// A guest that reboots has not followed the button; if it shuts down
		// later, that is its own doing.
		g.powerButton, g.poweredOff = false, false
	case "SHUTDOWN":
		g.shutdown = d.Reason
		g.poweredOff = g.poweredOff || d.Reason == shutdownGuest && !g.powerButton
		g.panicked = g.panicked || d.Reason == shutdownPanic
	case "GUEST_PANICKED":
		// With the action run the guest goes on.
		g.panicked = g.panicked || d.Action != "run"
	case "WATCHDOG":
		g.watchdog = g.watchdog || d.Action == "poweroff"
	case "MIGRATION":
		g.migration = migrationstatus.Status(d.Status)
	case "RESUME":
		g.resumed()
	}
}

// resumed notes that the guest's CPUs were started. A guest that goes on where it came from has
// not been migrated.
func (g *guest) resumed() {
	g.ran = true
	if g.migration == migrationstatus.Completed {
		g.migration = ""
	}
}

// arriving reports whether QEMU waits for a guest that has not run here.
func (g *guest) arriving() bool { return g.incoming && !g.ran }

// migrated reports whether the guest's state was sent to another QEMU, and the guest has not gone
// on here.
func (g *guest) migrated() bool { return g.migration == migrationstatus.Completed && !g.arriving() }

// absent reports whether there is no guest here: it has not arrived, or has left.
func (g *guest) absent() bool { return g.arriving() || g.migrated() }

// handsOver reports whether the guest is stopped until somebody has QEMU hand it over or keep it.
func (g *guest) handsOver() bool {
	return migrationstatus.CancelUnattended(g.migration, migrationstatus.Unattended) && !g.arriving()
}

// arrival is what is known of a guest that was to arrive.
func (g *guest) arrival(status exitStatus) launch.Incoming {
	switch {
	case !g.incoming:
		return ""
	case g.ran:
		return launch.IncomingRan
	case g.unheard(status):
		return ""
	}
	return launch.IncomingNeverRan
}

// unheard reports whether QEMU may have done something that is not known here. Before it has started
// (Start is answered) nobody can have had its guest run, or sent it away.
func (g *guest) unheard(status exitStatus) bool { return g.started && status.deaf }

// exit says how the guest ended, from the process's end and what went before.
func (g *guest) exit(status exitStatus) launch.Exit {
	exit := launch.Exit{Reason: g.reason(status), Code: status.wait.ExitStatus(), Incoming: g.arrival(status), Unheard: g.unheard(status)}
	switch exit.Reason {
	case launch.ReasonStartFailed, launch.ReasonCrashed:
		exit.Message = explain(status)
	case launch.ReasonInternalError:
		exit.Message = status.stderr
	case launch.ReasonKilled:
		exit.Message = "the guest did not shut down within its grace period"
	}
	return exit
}

func (g *guest) reason(status exitStatus) launch.Reason {
	clean := status.wait.Exited() && status.wait.ExitStatus() == 0
	switch {
	case g.migrated():
		// However this QEMU ends: the guest is not in it any more.
		return launch.ReasonMigrated
	case g.panicked:
		return launch.ReasonGuestPanicked
	case g.watchdog:
		return launch.ReasonWatchdog
	case g.failure != "":
		return g.failure
	case g.shutdown == shutdownHostError:
		return launch.ReasonCrashed
	case g.forced:
		return g.forcedReason()
	case g.stopping && !g.started:
		return launch.ReasonHostShutdown
	case !g.started:
		return launch.ReasonStartFailed
	case !clean:
		return launch.ReasonCrashed
	case g.endedItself():
		return launch.ReasonGuestShutdown
	}
	return launch.ReasonHostShutdown
}

// forcedReason is that of a QEMU that was killed.
func (g *guest) forcedReason() launch.Reason {
	switch {
	case g.endedItself():
		return launch.ReasonGuestShutdown
	case g.graceless:
		return launch.ReasonHostShutdown
	}
	return launch.ReasonKilled
}

// endedItself reports whether the guest shut down without having been asked to.
func (g *guest) endedItself() bool {
	return g.shutdown == shutdownGuestReset || g.poweredOff
}

// explain is a sentence for the VM's owner.
func explain(status exitStatus) string {
	if !status.wait.Signaled() {
		if status.stderr == "" {
			return fmt.Sprintf("QEMU ended with code %d and without a word", status.wait.ExitStatus())
		}
		return status.stderr
	}
	text := fmt.Sprintf("QEMU was ended by signal %d (%s)", status.wait.Signal(), status.wait.Signal())
	if status.wait.Signal() == syscall.SIGKILL {
		text += "; if nobody killed it, the pod ran out of memory"
	}
	if status.stderr != "" {
		text += ": " + status.stderr
	}
	return text
}

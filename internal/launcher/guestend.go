package launcher

import (
	"encoding/json"
	"fmt"
	"syscall"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// guest collects the facts about the guest's end. It is pure: the driver passes the events.
type guest struct {
	started   bool
	stopping  bool
	graceless bool // without a grace period
	forced    bool // the launcher has killed the guest
	failure   launch.Reason

	powerButton bool
	panicked    bool
	watchdog    bool
	shutdown    string
	poweredOff  bool // the guest has powered itself off, whatever ends its QEMU
	migration   migrationstatus.Status
	ran         bool // the CPUs were started after QEMU's monitor had answered

	incoming bool
	filling  bool // the guest runs here while its memory follows by post-copy
	broken   bool // the stream of a post-copy has broken
}

type exitStatus struct {
	wait   syscall.WaitStatus
	stderr string
	// deaf means that the monitor ended before QEMU, or that not all of its output was read.
	deaf bool
}

// Values of the member reason of QEMU's event SHUTDOWN.
const (
	shutdownGuest      = "guest-shutdown"
	shutdownGuestReset = "guest-reset"
	shutdownPanic      = "guest-panic"
	shutdownHostError  = "host-error"
)

// recordFailure records virt-handler's first failure, or that the guest has powered itself off.
func (g *guest) recordFailure(reason launch.Reason) {
	switch {
	case reason == launch.ReasonGuestShutdown:
		g.poweredOff = g.poweredOff || !g.powerButton
	case g.failure == "" && reason.Failed():
		g.failure = reason
	}
}

func (g *guest) recordEvent(name string, data []byte) {
	var d struct {
		Reason string `json:"reason"`
		Action string `json:"action"`
		Status string `json:"status"`
	}
	// An event may have no data.
	_ = json.Unmarshal(data, &d)
	switch name {
	case "POWERDOWN":
		g.powerButton = true
	case "RESET":
		// A rebooting guest has not obeyed the button; a later shutdown is its own.
		g.powerButton, g.poweredOff = false, false
	case "SHUTDOWN":
		g.shutdown = d.Reason
		g.poweredOff = g.poweredOff || d.Reason == shutdownGuest && !g.powerButton
		g.panicked = g.panicked || d.Reason == shutdownPanic
	case "GUEST_PANICKED":
		// With the action run the guest continues.
		g.panicked = g.panicked || d.Action != "run"
	case "WATCHDOG":
		g.watchdog = g.watchdog || d.Action == "poweroff"
	case "MIGRATION":
		g.migration = migrationstatus.Status(d.Status)
		g.broken = migrationstatus.StreamBroken(g.broken, g.migration)
		if g.filling && !g.migration.UnderWay() {
			// The end of a post-copy at its target does not move the guest.
			g.filling, g.migration = false, ""
		}
	case "RESUME":
		g.recordResume()
	}
}

// recordResume also records that a guest that continues at the source was not migrated.
func (g *guest) recordResume() {
	g.filling = g.filling || g.arriving() && (g.migration.PostCopy() || g.broken)
	g.ran = true
	if g.migration == migrationstatus.Completed {
		g.migration = ""
	}
}

func (g *guest) arrival() launch.Arrival {
	if !g.broken || !g.filling && !g.arriving() {
		return launch.Arrival{}
	}
	return launch.Arrival{Broken: true, Ran: g.ran}
}

func (g *guest) arriving() bool { return g.incoming && !g.ran }

// migrated reports whether the guest went to another QEMU and did not continue here.
func (g *guest) migrated() bool { return g.migration == migrationstatus.Completed && !g.arriving() }

func (g *guest) absent() bool { return g.arriving() || g.migrated() }

// handsOver reports whether the guest is stopped until its migration is completed or canceled.
func (g *guest) handsOver() bool {
	return migrationstatus.CancelUnattended(g.migration, migrationstatus.Unattended) && !g.arriving()
}

func (g *guest) exit(status exitStatus) launch.Exit {
	// Nobody can have run or migrated QEMU's guest before the answer to Start.
	unheard := g.started && status.deaf
	exit := launch.Exit{Reason: g.reason(status), Code: status.wait.ExitStatus(), Unheard: unheard}
	switch {
	case !g.incoming:
	case g.ran:
		exit.Incoming = launch.IncomingRan
	case !unheard:
		exit.Incoming = launch.IncomingNeverRan
	}
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
		// The guest is no longer in this QEMU, however it ends.
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

func (g *guest) forcedReason() launch.Reason {
	switch {
	case g.endedItself():
		return launch.ReasonGuestShutdown
	case g.graceless:
		return launch.ReasonHostShutdown
	}
	return launch.ReasonKilled
}

func (g *guest) endedItself() bool {
	return g.shutdown == shutdownGuestReset || g.poweredOff
}

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

package launcher

import (
	"encoding/json"
	"fmt"
	"syscall"

	"drydock.dev/drydock/internal/contracts/launch"
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
	migrated    bool
	shutdown    string
}

// exitStatus is how the process ended.
type exitStatus struct {
	wait   syscall.WaitStatus
	stderr string
}

// Values of the member reason of QEMU's event SHUTDOWN.
const (
	shutdownGuest      = "guest-shutdown"
	shutdownGuestReset = "guest-reset"
	shutdownPanic      = "guest-panic"
	shutdownHostError  = "host-error"
)

// fail notes that virt-handler ends the guest because it has failed. The first
// reason counts, and one that is no failure does not.
func (g *guest) fail(reason launch.Reason) {
	if g.failure == "" && reason.Failed() {
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
		g.powerButton = false
	case "SHUTDOWN":
		g.shutdown = d.Reason
		g.panicked = g.panicked || d.Reason == shutdownPanic
	case "GUEST_PANICKED":
		// With the action run the guest goes on.
		g.panicked = g.panicked || d.Action != "run"
	case "WATCHDOG":
		g.watchdog = g.watchdog || d.Action == "poweroff"
	case "MIGRATION":
		g.migrated = d.Status == "completed"
	}
}

// exit says how the guest ended, from the process's end and what went before.
func (g *guest) exit(status exitStatus) launch.Exit {
	exit := launch.Exit{Reason: g.reason(status), Code: status.wait.ExitStatus()}
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
	case g.panicked:
		return launch.ReasonGuestPanicked
	case g.watchdog:
		return launch.ReasonWatchdog
	case g.failure != "":
		return g.failure
	case g.shutdown == shutdownHostError:
		return launch.ReasonCrashed
	case g.forced && !g.graceless:
		return launch.ReasonKilled
	case g.forced, g.stopping && !g.started:
		return launch.ReasonHostShutdown
	case !g.started:
		return launch.ReasonStartFailed
	case !clean:
		return launch.ReasonCrashed
	case g.migrated:
		return launch.ReasonMigrated
	case g.endedItself():
		return launch.ReasonGuestShutdown
	}
	return launch.ReasonHostShutdown
}

// endedItself reports whether the guest shut down without having been asked to.
func (g *guest) endedItself() bool {
	return g.shutdown == shutdownGuestReset || g.shutdown == shutdownGuest && !g.powerButton
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

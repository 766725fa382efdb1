package connection

import (
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type observation struct {
	// ended means that virt-launcher has closed the link.
	linked, ended bool
	pending       bool
	failure       error
	launcher      launch.State
	// exit was reported on this link or an earlier one.
	exit     *launch.Exit
	exitedAt time.Time
	stopping *Stopping
}

// exitTime returns when virt-launcher says that QEMU ended, but not after its exit was seen. A guest that has taken
// over its pod may say any time; an older virt-launcher says none. The result has the monotonic clock of seen, against
// changes of the node's clock.
func exitTime(said, seen time.Time) time.Time {
	if said.IsZero() || said.After(seen) {
		return seen
	}
	return seen.Add(said.Sub(seen))
}

// decide returns the facts except the Link. QEMU's exit takes precedence: no launcher starts a second QEMU.
func decide(o observation) Facts {
	f := Facts{Exit: o.exit, ExitedAt: o.exitedAt, Failure: o.failure}
	linked := o.linked && !o.ended
	if linked {
		f.Stopping = o.stopping
	}
	switch {
	case o.exit != nil:
		f.Launcher = launch.State{Phase: launch.PhaseExited, Exit: o.exit}
	case linked:
		f.State, f.Launcher = vmihandler.LinkUp, o.launcher
	case o.pending:
		f.State = vmihandler.LinkPending
	}
	return f
}
